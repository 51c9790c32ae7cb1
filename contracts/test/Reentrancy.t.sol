// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot, FinalEpoch} from "../src/EpochRoot.sol";
import {Faucet} from "../src/Faucet.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

interface IListener {
    function onMove() external;
}

/// @notice A token that calls a listener before every transfer, as tokens with hooks do.
contract EagerToken is ERC20 {
    IListener private _listener;

    constructor() ERC20("Eager", "E") {
        _mint(msg.sender, 1e24);
    }

    function listenWith(IListener listener) external {
        _listener = listener;
    }

    function _update(address from, address to, uint256 value) internal override {
        if (address(_listener) != address(0)) _listener.onMove();
        super._update(from, to, value);
    }
}

/// @notice A callback during a transfer finds all state written, and cannot withdraw anything twice.
contract ReentrancyTest is Swarm, IListener {
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];
    EagerToken private eager = new EagerToken();
    EpochLedger private own;
    AccountBond private bonds;
    FraudVerifier private judge;
    StakeVault private stakes;
    /// The query at each transfer, and the answer at the first one.
    address private asked;
    bytes private question;
    bytes private found;
    bool private hasMoved;
    /// The call that is tried at each transfer.
    address private target;
    bytes private attack;
    bool private isAttacking;
    uint256 private successes;

    function setUp() external {
        own = new EpochLedger(EpochLedger.Terms(auditors, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, BOND, eager, RATE));
        bonds = new AccountBond(own, 50);
        (judge, stakes) = (own.verifier(), own.vault());
        eager.transfer(address(own.distributor()), 1e20);
        for (uint256 i = 0; i < 3; ++i) {
            eager.approve([address(stakes), address(bonds), address(judge)][i], type(uint256).max);
        }
        for (uint256 i = 0; i < COUNT; ++i) {
            stakes.deposit(auditors[i], BOND);
        }
    }

    function onMove() external {
        if (question.length != 0 && !hasMoved) (, found) = asked.staticcall(question);
        hasMoved = true;
        // Not recursively: otherwise the deepest call runs out of gas, and all appear refused.
        if (attack.length == 0 || isAttacking) return;
        isAttacking = true;
        (bool done,) = target.call(attack);
        isAttacking = false;
        if (done) ++successes;
    }

    function test_a_bond_is_recorded_before_tokens_are_transferred() external {
        _watch(address(stakes), abi.encodeCall(stakes.bonded, (address(this))));
        stakes.deposit(address(this), 5);
        same(abi.decode(found, (uint256)), 5, "an auditor's");
        _watch(address(bonds), abi.encodeCall(bonds.lastChange, ()));
        bonds.deposit(address(this), 5);
        (bytes32 history,) = bonds.lastChange();
        check(abi.decode(found, (bytes32)) == history, "an account's");
    }

    function test_a_bond_is_not_withdrawn_twice_by_a_callback() external {
        stakes.deposit(address(this), 5);
        bonds.deposit(address(this), 5);
        bonds.deposit(PROVER, 100);
        stakes.requestExit(5);
        bonds.requestExit(5);
        vm.warp(GENESIS + 10 * EPOCH);
        uint256 before = eager.balanceOf(address(this));
        _try(address(stakes), abi.encodeCall(stakes.withdraw, ()));
        stakes.withdraw();
        _try(address(bonds), abi.encodeCall(bonds.withdraw, ()));
        bonds.withdraw();
        same(eager.balanceOf(address(this)) - before, 10, "both once");
        same(successes, 0, "second withdrawals");
    }

    function test_a_slashed_bond_is_removed_before_tokens_are_transferred() external {
        stakes.deposit(PROVER, 9);
        _watch(address(stakes), abi.encodeCall(stakes.stakeOf, (PROVER)));
        vm.prank(address(judge));
        stakes.slash(PROVER, address(this));
        StakeVault.Stake memory left = abi.decode(found, (StakeVault.Stake));
        same(uint256(left.bonded) + left.exiting, 0, "an auditor's");
        bonds.deposit(PROVER, 9);
        for (uint256 i = 0; i < QUORUM; ++i) {
            if (i == 2) _watch(address(bonds), abi.encodeCall(bonds.lastChange, ()));
            vm.prank(auditors[i]);
            bonds.accuse(PROVER, 0, 0);
        }
        (bytes32 history,) = bonds.lastChange();
        check(abi.decode(found, (bytes32)) == history, "an account's");
    }

    function test_a_claim_is_recorded_before_tokens_are_transferred() external {
        own.distributor().enrol(accounts[0]);
        _post(0);
        vm.warp(afterEpoch(0) + WINDOW);
        own.finalise();
        bytes32[] memory proof = proofOf(points, 0);
        _watch(address(own.distributor()), abi.encodeCall(distributor.claimed, (accounts[0])));
        _try(address(own.distributor()), abi.encodeCall(distributor.claim, (accounts[0], 7, proof)));
        own.distributor().claim(accounts[0], 7, proof);
        same(abi.decode(found, (uint256)), 7, "claimed");
        same(successes, 0, "second claims");
        same(eager.balanceOf(accounts[0]), 7 * RATE, "tokens");
    }

    function test_a_question_is_recorded_before_its_bond_is_transferred() external {
        bytes32 posting = _post(0);
        vm.warp(afterEpoch(0) + 1);
        _watch(address(judge), abi.encodeCall(judge.questionOf, (posting, accounts[0])));
        // The third write of a question: without it the posting could be made final at the window's end.
        vm.warp(afterEpoch(0) + WINDOW - 1);
        judge.ask(accounts[0]);
        FraudVerifier.Question memory held = abi.decode(found, (FraudVerifier.Question));
        check(held.asker == address(this), "asked");
        _watch(address(judge), abi.encodeCall(judge.questionOf, (posting, accounts[0])));
        Place memory place = placeOf(points, 0);
        Place memory nobody = Place(address(0), 0, new bytes32[](0));
        _try(address(judge), abi.encodeCall(judge.answer, (accounts[0], nobody, place, place)));
        judge.answer(accounts[0], nobody, place, place);
        check(abi.decode(found, (FraudVerifier.Question)).asker == address(0), "answered");
        same(successes, 0, "second answers");
    }

    /// The callback can answer the only question, because it holds the posting already.
    function test_the_first_question_holds_the_posting_before_its_bond_is_transferred() external {
        bytes32 posting = _post(0);
        vm.warp(afterEpoch(0) + 1);
        eager.transfer(address(judge), CAP * RATE);
        Place memory place = placeOf(points, 0);
        Place memory nobody = Place(address(0), 0, new bytes32[](0));
        _watch(address(judge), abi.encodeCall(judge.openQuestions, (posting)));
        _try(address(judge), abi.encodeCall(judge.answer, (accounts[0], nobody, place, place)));
        judge.ask(accounts[0]);
        (address[] memory open,) = abi.decode(found, (address[], FraudVerifier.Question[]));
        check(open.length == 1 && open[0] == accounts[0], "it is on the list");
        same(successes, 1, "answered at once");
    }

    function test_final_epochs_are_recalled_before_the_bond_is_returned() external {
        EpochRoot memory root = _root(0);
        _post(0);
        vm.warp(afterEpoch(0) + WINDOW);
        own.finalise();
        FinalEpoch[] memory hidden = new FinalEpoch[](1);
        hidden[0] = FinalEpoch(root, 7, uint64(afterEpoch(0)), own.EMPTY_HISTORY(), 0);
        judge.askFinal(hidden, accounts[0]);
        vm.warp(afterEpoch(0) + 2 * WINDOW);
        _watch(address(own), abi.encodeCall(own.lastFinal, ()));
        judge.recall(hidden, accounts[0]);
        (bytes32 history,) = abi.decode(found, (bytes32, uint64));
        check(history == own.EMPTY_HISTORY(), "recalled");
    }

    /// The posting is held before the bond is transferred in, and released before it is transferred out.
    function test_a_posting_is_held_and_released_before_tokens_are_transferred() external {
        _post(0);
        vm.warp(afterEpoch(0) + 1);
        Place memory place = placeOf(points, 0);
        Place memory nobody = Place(address(0), 0, new bytes32[](0));
        judge.ask(accounts[1]);
        _try(address(judge), abi.encodeCall(judge.answer, (accounts[0], nobody, place, place)));
        judge.ask(accounts[0]);
        same(successes, 1, "answered at once, with the bond of another question until its own has come");
        _try(address(own), abi.encodeCall(own.finalise, ()));
        vm.warp(afterEpoch(0) + WINDOW);
        place = placeOf(points, 1);
        judge.answer(accounts[1], nobody, place, place);
        same(successes, 2, "final at once");
        same(eager.balanceOf(address(judge)), 0, "no bond is left or missing");
    }

    function test_a_posting_is_rejected_before_the_askers_bond_is_returned() external {
        _post(0);
        vm.warp(afterEpoch(0) + 1);
        judge.ask(accounts[0]);
        vm.warp(afterEpoch(0) + 1 + WINDOW);
        _watch(address(own), abi.encodeCall(own.live, ()));
        judge.proveHidden(accounts[0]);
        (, uint64 postedAt,) = abi.decode(found, (EpochRoot, uint64, uint64));
        same(postedAt, 0, "rejected");
    }

    function test_a_question_is_not_refunded_twice_by_a_callback() external {
        bytes32 posting = _post(0);
        vm.warp(afterEpoch(0) + 1);
        judge.ask(accounts[0]);
        judge.ask(accounts[1]);
        vm.prank(address(judge));
        own.reject();
        uint256 before = eager.balanceOf(address(this));
        _try(address(judge), abi.encodeCall(judge.refund, (posting, accounts[0])));
        judge.refund(posting, accounts[0]);
        same(successes, 0, "second refunds");
        same(eager.balanceOf(address(this)) - before, CAP * RATE, "one bond");
    }

    function test_an_equivocation_strikes_before_tokens_are_transferred() external {
        EpochRoot memory root = _root(0);
        _post(0);
        EpochRoot memory other = _root(0);
        other.archiveDigest = keccak256("another");
        (bytes memory a, bytes memory b) = (_sign(0, root), _sign(0, other));
        _watch(address(own), abi.encodeCall(own.live, ()));
        _try(address(judge), abi.encodeCall(judge.proveEquivocation, (TURN, root, other, a, b)));
        judge.proveEquivocation(TURN, root, other, a, b);
        (,, uint64 signers) = abi.decode(found, (EpochRoot, uint64, uint64));
        same(signers, 6, "without its signature");
        same(successes, 0, "second proofs");
    }

    function test_a_drip_is_recorded_before_tokens_are_transferred() external {
        Faucet faucet = new Faucet(eager, 10, 4);
        eager.transfer(address(faucet), 100);
        vm.deal(address(faucet), 100);
        _try(address(faucet), abi.encodeCall(faucet.drip, (payable(PROVER))));
        faucet.drip(payable(PROVER));
        same(successes, 0, "second drips");
        same(address(faucet).balance, 96, "coin left");
        same(eager.balanceOf(address(faucet)), 90, "tokens left");
    }

    function _watch(address asked_, bytes memory question_) private {
        (asked, question, hasMoved, attack) = (asked_, question_, false, "");
        eager.listenWith(this);
    }

    function _try(address target_, bytes memory attack_) private {
        (target, attack) = (target_, attack_);
        eager.listenWith(this);
    }

    function _root(uint64 epoch) private view returns (EpochRoot memory) {
        return statement(epoch, points, none); // both ledgers are without final epochs
    }

    function _post(uint64 epoch) private returns (bytes32) {
        EpochRoot memory root = _root(epoch);
        bytes[] memory signed = new bytes[](QUORUM);
        for (uint256 i = 0; i < QUORUM; ++i) {
            signed[i] = _sign(i, root);
        }
        vm.warp(afterEpoch(epoch));
        own.post(root, TURN, signed);
        return judge.postingOf(own.epochRootDigest(root), uint64(block.timestamp));
    }

    function _sign(uint256 auditor, EpochRoot memory root) private view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keys[auditor], own.approvalDigest(root, TURN));
        return abi.encodePacked(r, s, v);
    }
}
