// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice One of four auditors attacks the three others: it posts the correct root with exactly a quorum of
///         signatures, its own included, and proves its own equivocation at the end of the window. In the same
///         transaction it bonds again and posts again, before anyone else can.
contract Saboteur {
    EpochLedger private immutable ledger;
    FraudVerifier private immutable verifier;
    StakeVault private immutable vault;
    address private immutable auditor;
    uint256 private immutable bond;

    constructor(EpochLedger ledger_, address auditor_, SapoToken token) {
        (ledger, verifier, vault) = (ledger_, ledger_.verifier(), ledger_.vault());
        (auditor, bond) = (auditor_, ledger_.auditorBond());
        token.approve(address(vault), type(uint256).max);
    }

    function strike(
        uint32 turn,
        EpochRoot[2] calldata lies,
        bytes[2] calldata signed,
        EpochRoot calldata root,
        uint32 turnOfRoot,
        bytes[] calldata signatures
    ) external {
        verifier.proveEquivocation(turn, lies[0], lies[1], signed[0], signed[1]);
        vault.deposit(auditor, bond);
        ledger.post(root, turnOfRoot, signatures);
    }
}

contract LateStrikeTest is Swarm {
    uint256 private constant ROUNDS = 5;
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    /// After each strike the three others add their signatures in the next block, and make the posting final. Whatever
    /// the attacker pays, the epoch is final a block after its window.
    function test_an_auditor_that_strikes_itself_delays_no_epoch() external {
        Saboteur saboteur = new Saboteur(ledger, auditors[0], token);
        token.transfer(address(saboteur), 10 * BOND);
        EpochRoot memory root = statement(0, points, none);
        bytes[] memory first = signatures(7, root);
        bytes[] memory honest = signatures(14, root);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, first);
        uint256 postedAt = block.timestamp;
        for (uint32 i = 0; i < ROUNDS && ledger.nextEpoch() == 0; ++i) {
            (, uint256 seen,) = ledger.live();
            vm.warp(seen + WINDOW - 1);
            _strike(saboteur, i, root, first);
            _try(abi.encodeCall(ledger.post, (root, TURN, honest)));
            vm.warp(block.timestamp + 1);
            _try(abi.encodeCall(ledger.finalise, ()));
        }
        same(ledger.nextEpoch(), 1, "final");
        same(block.timestamp, postedAt + WINDOW, "in time");
    }

    /// Signatures are added only to the live statement, by a call with a quorum and at least one new signer; the window
    /// does not restart.
    function test_signatures_are_added_only_to_the_live_statement() external {
        EpochRoot memory root = statement(0, points, none);
        EpochRoot memory other = statement(0, none, none);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        vm.warp(afterEpoch(0) + 1);
        _refused(root, TURN, signatures(7, root), EpochLedger.OtherPostingLive.selector);
        _refused(root, TURN, signatures(12, root), EpochLedger.TooFewSignatures.selector);
        _refused(other, TURN, signatures(14, other), EpochLedger.OtherPostingLive.selector);
        _refused(root, TURN + 1, signatures(14, root), EpochLedger.NotAuditor.selector);
        ledger.post(root, TURN, signatures(14, root));
        _is(root, 15);
        _strikeAs(0);
        _is(root, 14);
        vm.warp(afterEpoch(0) + WINDOW);
        ledger.finalise();
        same(ledger.nextEpoch(), 1, "it had a quorum all the time");
    }

    /// A posting that lost any number of signatures becomes final only once it has a quorum again.
    function testFuzz_a_posting_without_a_quorum_does_not_become_final(uint8 lost) external {
        EpochRoot memory root = statement(0, points, none);
        uint64 left = 15;
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(15, root));
        for (uint256 i = 0; i < COUNT; ++i) {
            if (lost & (1 << i) == 0) continue;
            _strikeAs(i);
            left &= ~uint64(1 << i);
        }
        _is(root, left);
        vm.warp(afterEpoch(0) + WINDOW);
        if (signatures(left, root).length < QUORUM) {
            vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
            ledger.finalise();
            ledger.post(root, TURN, signatures(15, root));
            _is(root, 15);
        }
        ledger.finalise();
        same(ledger.nextEpoch(), 1, "final");
    }

    /// Questions and missing signatures are waited for independently, in any order.
    function testFuzz_a_posting_waits_for_an_answer_and_for_a_missing_signature(bool isAskedFirst, bool isAnsweredFirst)
        external
    {
        EpochRoot memory root = statement(0, points, none);
        token.approve(address(verifier), type(uint256).max);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        vm.warp(afterEpoch(0) + 1);
        if (isAskedFirst) verifier.ask(accounts[0]);
        _strikeAs(0);
        if (!isAskedFirst) verifier.ask(accounts[0]);
        vm.warp(afterEpoch(0) + WINDOW);
        for (uint256 i = 0; i < 2; ++i) {
            vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
            ledger.finalise();
            if ((i == 0) == isAnsweredFirst) _answer();
            else ledger.post(root, TURN, signatures(14, root));
        }
        ledger.finalise();
        same(ledger.nextEpoch(), 1, "final");
    }

    /// Two statements of an epoch cannot replace each other repeatedly: one without a quorum is replaceable only when
    /// any other posting is.
    function test_a_posting_without_a_quorum_can_be_replaced_an_epoch_after_its_window() external {
        EpochRoot memory root = statement(0, points, none);
        EpochRoot memory other = statement(0, none, none);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        _strikeAs(0);
        vm.warp(afterEpoch(0) + WINDOW + EPOCH - 1);
        _refused(other, TURN, signatures(14, other), EpochLedger.OtherPostingLive.selector);
        vm.warp(afterEpoch(0) + WINDOW + EPOCH);
        ledger.post(other, TURN, signatures(14, other));
        _is(other, 14);
    }

    function _answer() private {
        Place memory place = placeOf(points, 0);
        verifier.answer(accounts[0], Place(address(0), 0, new bytes32[](0)), place, place);
    }

    function _refused(EpochRoot memory root, uint32 turn, bytes[] memory signed, bytes4 selector) private {
        (bool done, bytes memory why) = address(ledger).call(abi.encodeCall(ledger.post, (root, turn, signed)));
        bool isSo = bytes4(why) == selector;
        // Signatures of another turn recover to arbitrary accounts in any order.
        if (selector == EpochLedger.NotAuditor.selector) isSo = isSo || bytes4(why) == EpochLedger.SignerOrder.selector;
        check(!done && isSo, "refused");
    }

    function _strikeAs(uint256 auditor) private {
        vm.prank(address(verifier));
        ledger.strike(auditors[auditor], 0);
    }

    function _is(EpochRoot memory root, uint64 signers) private view {
        (EpochRoot memory live, uint64 postedAt, uint64 signed) = ledger.live();
        check(keccak256(abi.encode(live)) == keccak256(abi.encode(root)), "the statement");
        same(postedAt, block.timestamp < afterEpoch(0) + WINDOW + EPOCH ? afterEpoch(0) : block.timestamp, "posted");
        same(signed, signers, "signers");
    }

    function _strike(Saboteur saboteur, uint32 turn, EpochRoot memory root, bytes[] memory first) private {
        EpochRoot[2] memory lies = [statement(0, points, none), statement(0, points, none)];
        lies[0].archiveDigest = keccak256("one");
        lies[1].archiveDigest = keccak256("two");
        bytes[2] memory signed = [signature(0, lies[0], turn), signature(0, lies[1], turn)];
        saboteur.strike(turn, lies, signed, root, TURN, first);
    }

    function _try(bytes memory data) private {
        (bool done,) = address(ledger).call(data);
        done;
    }
}
