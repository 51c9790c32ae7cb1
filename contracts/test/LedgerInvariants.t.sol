// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Checked} from "./Vm.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Auditors that post true and false statements, one honest watcher, deposits, exits and claims; it keeps its
///         own accounts of all of it.
contract LedgerHandler is Swarm {
    enum Lie {
        None,
        OverCap,
        Shift
    }

    struct Live {
        Lie lie;
        EpochRoot root;
        uint256[COUNT] points;
        uint256[COUNT] cumulative;
        uint256 signers;
        uint256 postedAt;
    }

    // The handler's accounts
    uint256[COUNT] private _granted;
    uint256[COUNT] private _claimed;
    uint256 private _finals;
    uint256 private _nextEpoch;
    bytes32 private _history = bytes32(uint256(1));
    uint256 private _finalBlock;
    uint256 private _deposited = COUNT * BOND;
    uint256 private _withdrawn;
    uint256 private _slashed;
    uint256 private _slashes;
    Live private _live;

    /// How often each outcome occurred.
    mapping(string what => uint256) public count;

    // Actions

    function post(uint256 kind, uint256[COUNT] memory points, uint256 signers, uint256 skipped) external {
        Live memory live = _invent(Lie(kind % 3), points, uint64(_nextEpoch + skipped % 3));
        signers = 7 + signers % 9; // at least one of them has a quorum
        bytes[] memory signed = signatures(signers, live.root);
        if (block.timestamp < afterEpoch(live.root.epoch)) _to(afterEpoch(live.root.epoch));
        if (_live.postedAt != 0 && block.timestamp < _live.postedAt + WINDOW + EPOCH) {
            vm.expectPartialRevert(EpochLedger.OtherPostingLive.selector);
        } else if (signatures(_bonded(signers), live.root).length < QUORUM) {
            vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        } else {
            live.signers = _bonded(signers);
            live.postedAt = block.timestamp;
            _live = live;
            ++count[live.lie == Lie.None ? "truth posted" : "lie posted"];
        }
        ledger.post(live.root, TURN, signed);
    }

    /// The watcher proves every false posting in time.
    function finalise() external {
        if (_live.postedAt == 0) {
            vm.expectPartialRevert(EpochLedger.NothingLive.selector);
            ledger.finalise();
        } else if (block.timestamp < _live.postedAt + WINDOW) {
            vm.expectPartialRevert(EpochLedger.StillChallengeable.selector);
            ledger.finalise();
        } else if (_live.lie != Lie.None) {
            challenge();
        } else if (signatures(_live.signers, _live.root).length < QUORUM) {
            vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
            ledger.finalise();
        } else {
            vm.roll(block.number + 1 + _finals % 3);
            ledger.finalise();
            _history =
                keccak256(abi.encode(_live.root, _live.signers, _live.postedAt, _history, _finalBlock));
            _finalBlock = block.number;
            _granted = _live.cumulative;
            _nextEpoch = _live.root.epoch + 1;
            _live.postedAt = 0;
            ++_finals;
            ++count["final"];
        }
    }

    function challenge() public {
        if (_live.postedAt == 0) return;
        Lie lie = _live.lie;
        uint256 i = 0;
        while (lie == Lie.Shift && _live.cumulative[i] == _earned(i)) ++i;
        _prove(Lie.OverCap, lie, FraudVerifier.WithinCap.selector, 3);
        _prove(Lie.Shift, lie, FraudVerifier.Balanced.selector, i);
        if (lie == Lie.None) return;
        check(_live.postedAt == 0, "a lie survived its challenge");
        bytes[] memory signed = signatures(_live.signers, _live.root);
        vm.expectPartialRevert(EpochLedger.RootRejected.selector);
        ledger.post(_live.root, TURN, signed);
        ++count["lie rejected"];
    }

    function equivocate(uint256 auditor, uint256 epoch) external {
        auditor %= COUNT;
        EpochRoot memory a = _live.root;
        a.epoch = _live.postedAt != 0 ? _live.root.epoch : uint64(epoch % 1000);
        EpochRoot memory b = _live.root;
        (b.epoch, b.archiveDigest) = (a.epoch, keccak256("another"));
        (bytes memory ofA, bytes memory ofB) = (signature(auditor, a), signature(auditor, b));
        if (verifier.equivocated(auditors[auditor], a.epoch, TURN)) {
            vm.expectPartialRevert(FraudVerifier.AlreadyProven.selector);
            verifier.proveEquivocation(TURN, a, b, ofA, ofB);
            return;
        }
        _bookSlash(auditor);
        vm.prank(PROVER);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        ++count["equivocation"];
        if (_live.postedAt == 0 || _live.signers & (1 << auditor) == 0) return;
        _live.signers &= ~(1 << auditor);
        if (signatures(_live.signers, a).length < QUORUM) ++count["quorum lost"];
    }

    /// Signatures are added to the live statement; its window does not restart.
    function addSignatures(uint256 signers) external {
        if (_live.postedAt == 0) return;
        signers = 7 + signers % 9;
        bytes[] memory signed = signatures(signers, _live.root);
        uint256 bonded = _bonded(signers);
        if (signatures(bonded, _live.root).length < QUORUM) {
            vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        } else if (_live.signers | bonded == _live.signers) {
            vm.expectPartialRevert(EpochLedger.OtherPostingLive.selector);
        } else {
            _live.signers |= bonded;
            ++count["signatures added"];
        }
        ledger.post(_live.root, TURN, signed);
    }

    function bond(uint256 auditor, uint256 amount) external {
        amount = bound(amount, 1, 3 * BOND);
        vault.deposit(auditors[auditor % COUNT], amount);
        _deposited += amount;
    }

    function requestExit(uint256 auditor, uint256 amount) external {
        auditor %= COUNT;
        uint256 bonded = vault.bonded(auditors[auditor]);
        if (bonded == 0) return;
        vm.prank(auditors[auditor]);
        vault.requestExit(bound(amount, 1, bonded));
        ++count["exit"];
    }

    function withdraw(uint256 auditor) external {
        auditor %= COUNT;
        StakeVault.Stake memory stake = vault.stakeOf(auditors[auditor]);
        if (stake.exiting == 0) {
            vm.expectPartialRevert(StakeVault.NothingExiting.selector);
        } else if (block.timestamp < stake.withdrawableAt) {
            vm.expectPartialRevert(StakeVault.ExitTooEarly.selector);
        } else {
            _withdrawn += stake.exiting;
            ++count["withdrawal"];
        }
        vm.prank(auditors[auditor]);
        vault.withdraw();
    }

    function claim(uint256 i) external {
        i %= COUNT;
        bytes32[] memory proof = proofOf(_granted, i);
        if (_granted[i] == 0) {
            vm.expectPartialRevert(RewardDistributor.WrongProof.selector);
        } else if (_granted[i] == _claimed[i]) {
            vm.expectPartialRevert(RewardDistributor.NothingToClaim.selector);
        } else {
            _claimed[i] = _granted[i];
            ++count["claim"];
        }
        distributor.claim(accounts[i], _granted[i], proof);
    }

    /// Nothing is paid from a live posting, true or false.
    function claimTooEarly(uint256 i) external {
        i %= COUNT;
        if (_live.postedAt == 0 || _live.root.cumulativeRoot == distributor.cumulativeRoot()) return;
        bytes32[] memory proof = proofOf(_live.cumulative, i);
        vm.expectPartialRevert(RewardDistributor.WrongProof.selector);
        distributor.claim(accounts[i], _live.cumulative[i], proof);
    }

    function wait(uint256 seconds_) external {
        _to(block.timestamp + bound(seconds_, 1, 2 * EPOCH));
    }

    // Invariants

    function verify() external view {
        _verifyBonds();
        _verifyLedger();
        _verifyRewards();
    }

    function _verifyBonds() private view {
        uint256 stakes = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            StakeVault.Stake memory stake = vault.stakeOf(auditors[i]);
            stakes += uint256(stake.bonded) + stake.exiting;
        }
        same(stakes, _deposited - _withdrawn - _slashed, "stakes against the books");
        same(token.balanceOf(address(vault)), stakes, "tokens that the vault holds");
        (uint256 burned, uint256 rewarded) = (token.balanceOf(BURNED), token.balanceOf(PROVER));
        same(burned + rewarded, _slashed, "burned and rewarded");
        check(burned >= rewarded && burned - rewarded <= _slashes, "half is burned, half the prover's");
    }

    function _verifyLedger() private view {
        same(ledger.nextEpoch(), _nextEpoch, "next epoch");
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        check(history == _history, "one hash over all that became final, in order");
        same(finalBlock, _finalBlock, "block of the last final epoch");
        (EpochRoot memory live, uint64 postedAt, uint64 signers) = ledger.live();
        same(postedAt, _live.postedAt, "posted at");
        if (postedAt == 0) return;
        same(signers, _live.signers, "signers");
        check(keccak256(abi.encode(live)) == keccak256(abi.encode(_live.root)), "the live statement");
        check(live.baseRoot == distributor.cumulativeRoot(), "it adds to what is granted");
        check(live.epoch >= _nextEpoch, "the live epoch is above every final one");
        check(live.total <= BUDGET, "within the budget");
    }

    function _verifyRewards() private view {
        same(distributor.grantedPoints(), sumOf(_granted), "granted is what the tree adds up to");
        same(distributor.paidPoints(), sumOf(_claimed), "paid is what was claimed");
        check(_finals == 0 || distributor.cumulativeRoot() == treeOf(_granted), "the root that pays");
        check(distributor.grantedPoints() <= BUDGET * _finals, "within all budgets");
        same(token.balanceOf(address(distributor)), REWARDS - sumOf(_claimed) * RATE, "tokens left for rewards");
        for (uint256 i = 0; i < COUNT; ++i) {
            same(distributor.claimed(accounts[i]), _claimed[i], "claimed never falls");
            check(_claimed[i] <= _granted[i], "claimed within the cumulative points");
            check(_granted[i] <= CAP * _finals, "within all caps");
            same(token.balanceOf(accounts[i]), _claimed[i] * RATE, "tokens paid");
        }
    }

    function _invent(Lie lie, uint256[COUNT] memory points, uint64 epoch) private view returns (Live memory live) {
        for (uint256 i = 0; i < COUNT; ++i) {
            points[i] = bound(points[i], 0, 10);
        }
        if (lie == Lie.OverCap) points[3] = CAP + 1;
        uint256 rich = 0;
        while (rich < COUNT && _granted[rich] == 0) ++rich;
        if (lie == Lie.Shift && rich == COUNT) lie = Lie.None;
        for (uint256 i = 0; i < COUNT; ++i) {
            live.cumulative[i] = _granted[i] + points[i];
        }
        if (lie == Lie.Shift) {
            --live.cumulative[rich];
            ++live.cumulative[(rich + 1) % COUNT];
        }
        live.lie = lie;
        live.points = points;
        uint256 total = sumOf(points);
        bytes32 archive = keccak256(abi.encode(lie, points, block.timestamp));
        live.root = EpochRoot(
            epoch, distributor.cumulativeRoot(), treeOf(points), treeOf(live.cumulative), total, archive
        );
    }

    /// Submits one kind of proof: it is accepted if it fits the false statement, otherwise refused.
    function _prove(Lie rule, Lie lie, bytes4 refusal, uint256 i) private {
        if (_live.postedAt == 0) return;
        bool convicts = rule == lie;
        if (convicts) {
            for (uint256 auditor = 0; auditor < COUNT; ++auditor) {
                if (_live.signers & (1 << auditor) != 0) _bookSlash(auditor);
            }
        }
        Place[3] memory places = [placeOf(_granted, i), placeOf(_live.points, i), placeOf(_live.cumulative, i)];
        if (!convicts) vm.expectPartialRevert(refusal);
        vm.prank(PROVER);
        if (rule == Lie.OverCap) verifier.proveOverCap(accounts[i], places[1]);
        else verifier.proveBalance(accounts[i], places[0], places[1], places[2]);
        if (convicts) _live.postedAt = 0;
    }

    function _earned(uint256 i) private view returns (uint256) {
        return _granted[i] + _live.points[i];
    }

    function _bookSlash(uint256 auditor) private {
        StakeVault.Stake memory stake = vault.stakeOf(auditors[auditor]);
        _slashed += uint256(stake.bonded) + stake.exiting;
        ++_slashes;
    }

    /// The signers whose signatures count.
    function _bonded(uint256 signers) private view returns (uint256 bonded) {
        for (uint256 i = 0; i < COUNT; ++i) {
            if (signers & (1 << i) != 0 && vault.bonded(auditors[i]) >= BOND) bonded |= 1 << i;
        }
    }

    uint256 private _now = GENESIS;

    function _to(uint256 seconds_) private {
        _now = seconds_ > _now ? seconds_ : _now;
        vm.warp(_now);
    }
}

contract LedgerInvariants is Checked {
    LedgerHandler private handler;

    function setUp() external {
        handler = new LedgerHandler();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_bonds_ledger_and_rewards_equal_the_handlers_accounts() external view {
        handler.verify();
    }

    function test_the_handler_reaches_every_outcome() external {
        uint256[4] memory points = [uint256(7), 3, 1, 0];
        handler.claim(0);
        handler.post(0, points, 0, 1);
        handler.post(0, points, 0, 1);
        handler.claimTooEarly(0);
        handler.challenge();
        handler.finalise();
        handler.wait(WINDOW_SECONDS);
        handler.finalise();
        handler.claim(0);
        handler.claim(0);
        for (uint256 lie = 1; lie < 3; ++lie) {
            handler.post(lie, points, 0, 0);
            handler.verify();
            handler.challenge();
            handler.verify();
            for (uint256 i = 0; i < 4; ++i) {
                handler.bond(i, 100);
            }
        }
        handler.post(0, points, 0, 0);
        handler.equivocate(0, 0);
        handler.equivocate(0, 0);
        handler.bond(0, 101);
        handler.addSignatures(0);
        handler.addSignatures(0);
        handler.requestExit(1, 50);
        handler.withdraw(1);
        handler.wait(199);
        handler.wait(199);
        handler.withdraw(1);
        handler.verify();
        string[10] memory expected = [
            "truth posted", "lie posted", "final", "lie rejected", "claim", "equivocation", "quorum lost",
            "signatures added", "exit", "withdrawal"
        ];
        for (uint256 i = 0; i < expected.length; ++i) {
            check(handler.count(expected[i]) > 0, expected[i]);
        }
        same(handler.count("lie rejected"), 2, "lies rejected");
    }

    uint256 private constant WINDOW_SECONDS = 29; // the handler waits one second more
}
