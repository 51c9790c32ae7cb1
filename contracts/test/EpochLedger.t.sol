// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {Swarm} from "./Swarm.sol";
import {Vm} from "./Vm.sol";

contract EpochLedgerTest is Swarm {
    uint256[COUNT] private none;
    /// The last epoch whose challenge window ends within 40 bits of seconds, also if it is posted late.
    uint64 private constant LAST_EPOCH = 1e8;

    function testFuzz_final_only_after_the_window(uint64 epoch, uint256 late, uint256 early) external {
        epoch = uint64(bound(epoch, 0, LAST_EPOCH));
        early = bound(early, 0, WINDOW - 1);
        EpochRoot memory root = statement(epoch, [uint256(7), 3, 1, 0], none);
        uint256 postedAt = afterEpoch(epoch) + bound(late, 0, 1 << 30);
        vm.warp(postedAt);
        ledger.post(root, TURN, signatures(7, root));
        vm.warp(postedAt + early);
        vm.expectPartialRevert(EpochLedger.StillChallengeable.selector);
        ledger.finalise();
        vm.warp(postedAt + WINDOW);
        ledger.finalise();
        same(ledger.nextEpoch(), uint256(epoch) + 1, "next epoch");
        check(distributor.cumulativeRoot() == root.cumulativeRoot, "what pays");
    }

    function testFuzz_all_records_are_read_backwards(uint64[4] memory epochs, uint64[4] memory blocks) external {
        EpochRoot[4] memory roots;
        uint256[4] memory postedAt;
        uint64 next = 0;
        vm.recordLogs();
        for (uint256 i = 0; i < 4; ++i) {
            blocks[i] = uint64(block.number + bound(blocks[i], 1, 1 << 20));
            vm.roll(blocks[i]);
            uint256[COUNT] memory before = [7 * i, 3 * i, i, 0];
            roots[i] = statement(uint64(bound(epochs[i], next, next + 3)), [uint256(7), 3, 1, 0], before);
            next = roots[i].epoch + 1;
            _postAndReject(roots[i]);
            postedAt[i] = _post(roots[i]);
            vm.warp(postedAt[i] + WINDOW);
            ledger.finalise();
        }
        Vm.Log[] memory logs = _finals(vm.getRecordedLogs());
        same(logs.length, 4, "final epochs");
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        for (uint256 left = 4; left > 0; --left) {
            uint256 i = left - 1;
            check(keccak256(logs[i].data) == history, "the hash of the newest record that is left");
            same(finalBlock, blocks[i], "its block");
            (EpochRoot memory root, uint64 signers, uint64 when, bytes32 previous, uint64 previousBlock) =
                abi.decode(logs[i].data, (EpochRoot, uint64, uint64, bytes32, uint64));
            check(keccak256(abi.encode(root)) == keccak256(abi.encode(roots[i])), "the whole statement");
            same(signers, 7, "signers");
            same(when, postedAt[i], "posted at");
            same(uint256(logs[i].topics[1]), root.epoch, "topic");
            (history, finalBlock) = (previous, previousBlock);
        }
        check(history == ledger.EMPTY_HISTORY(), "nothing before the first");
        same(finalBlock, 0, "no block before the first");
    }

    function testFuzz_times_and_blocks_that_do_not_fit_are_refused(uint256 late, uint256 far) external {
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(7, root);
        vm.warp((1 << 40) + bound(late, 0, 1 << 60));
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        ledger.post(root, TURN, signed);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signed);
        vm.warp(afterEpoch(0) + WINDOW);
        vm.roll((1 << 40) + bound(far, 0, 1 << 60));
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        ledger.finalise();
    }

    function testFuzz_only_a_quorum_posts(uint256 signers) external {
        signers = bound(signers, 0, 15);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(signers, root);
        vm.warp(afterEpoch(0));
        if (signed.length < QUORUM) vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, TURN, signed);
        (,, uint64 recorded) = ledger.live();
        same(recorded, signed.length < QUORUM ? 1 : signers, "signers on record");
    }

    function testFuzz_signatures_of_a_changed_statement_are_refused(uint256 field, uint256 value) external {
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(7, root);
        field = bound(field, 0, 4);
        if (field == 0) root.contributionRoot = bytes32(value);
        if (field == 1) root.cumulativeRoot = bytes32(value);
        if (field == 2) root.total = bound(value, 0, BUDGET);
        if (field == 3) root.archiveDigest = bytes32(value);
        if (field == 4) root.baseRoot = bytes32(value);
        vm.assume(keccak256(abi.encode(root)) != keccak256(abi.encode(statement(0, [uint256(7), 3, 1, 0], none))));
        vm.warp(afterEpoch(0));
        (bool accepted,) = address(ledger).call(abi.encodeCall(ledger.post, (root, TURN, signed)));
        check(!accepted, "accepted under other signatures");
    }

    function testFuzz_no_posting_before_the_epochs_end_or_above_the_budget(uint64 epoch, uint256 early, uint256 total)
        external
    {
        epoch = uint64(bound(epoch, 0, LAST_EPOCH));
        EpochRoot memory root = statement(epoch, [uint256(7), 3, 1, 0], none);
        vm.warp(afterEpoch(epoch) - bound(early, 1, EPOCH));
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.EpochNotOver.selector);
        ledger.post(root, TURN, signed);
        vm.warp(afterEpoch(epoch));
        root.total = bound(total, BUDGET + 1, type(uint256).max);
        signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.OverBudget.selector);
        ledger.post(root, TURN, signed);
    }

    function testFuzz_signatures_count_only_for_their_turn(uint32 turn) external {
        vm.assume(turn != TURN);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(0));
        (bool accepted,) = address(ledger).call(abi.encodeCall(ledger.post, (root, turn, signed)));
        check(!accepted, "accepted in another turn");
        ledger.post(root, TURN, signed);
    }

    /// A signer that withdraws its bond just before a posting invalidates only its own signature.
    function testFuzz_signers_without_a_bond_do_not_prevent_a_posting(uint256 leaving) external {
        leaving = bound(leaving, 0, COUNT - 1);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(15, root);
        vm.prank(auditors[leaving]);
        vault.requestExit(1);
        vm.warp(afterEpoch(0));
        bytes[] memory three = signatures(leaving == 3 ? 13 : 15 - (1 << (leaving + 1)), root);
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, TURN, three);
        ledger.post(root, TURN, signed);
        (,, uint64 recorded) = ledger.live();
        same(recorded, 15 - (1 << leaving), "signers on record");
    }

    /// A statement of the next epoch that was signed before an earlier one was posted must not be accepted.
    function test_a_statement_signed_before_another_one_became_final_is_refused() external {
        EpochRoot memory first = statement(0, [uint256(7), 3, 1, 0], none);
        EpochRoot memory second = statement(1, [uint256(1), 2, 3, 4], [uint256(7), 3, 1, 0]);
        second.baseRoot = 0;
        vm.warp(afterEpoch(1));
        ledger.post(first, TURN, signatures(7, first));
        vm.warp(afterEpoch(1) + WINDOW);
        ledger.finalise();
        bytes[] memory signed = signatures(7, second);
        vm.expectPartialRevert(EpochLedger.StaleBase.selector);
        ledger.post(second, TURN, signed);
        second.baseRoot = first.cumulativeRoot;
        ledger.post(second, TURN, signatures(7, second));
    }

    /// Repeated signatures of one auditor are refused; the order of addresses excludes them.
    function testFuzz_one_signer_counts_once(uint256 repeated, uint256 other) external {
        repeated = bound(repeated, 0, COUNT - 1);
        other = bound(other, 0, COUNT - 1);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = new bytes[](QUORUM);
        signed[0] = signature(repeated, root);
        signed[1] = signature(repeated, root);
        signed[2] = signature(other, root);
        vm.warp(afterEpoch(0));
        vm.expectPartialRevert(EpochLedger.SignerOrder.selector);
        ledger.post(root, TURN, signed);
    }

    function testFuzz_a_final_epoch_and_older_ones_are_not_posted_again(uint64 epoch, uint64 older) external {
        epoch = uint64(bound(epoch, 0, 100));
        EpochRoot memory first = statement(epoch, [uint256(7), 3, 1, 0], none);
        vm.warp(_post(first) + WINDOW);
        ledger.finalise();
        EpochRoot memory again = statement(uint64(bound(older, 0, epoch)), [uint256(1), 0, 0, 0], [uint256(7), 3, 1, 0]);
        bytes[] memory signed = signatures(7, again);
        vm.expectPartialRevert(EpochLedger.EpochNotIncreasing.selector);
        ledger.post(again, TURN, signed);
    }

    /// A posting that nobody can verify, and so nobody makes final, must not block all later payments.
    function testFuzz_a_posting_that_nobody_makes_final_can_be_replaced(uint256 early, uint256 late) external {
        EpochRoot memory hidden = statement(0, [uint256(7), 3, 1, 0], none);
        EpochRoot memory other = statement(1, [uint256(1), 2, 3, 4], none);
        uint256 postedAt = _post(hidden);
        bytes[] memory signed = signatures(14, other);
        vm.warp(bound(early, afterEpoch(1), postedAt + WINDOW + EPOCH - 1));
        vm.expectPartialRevert(EpochLedger.OtherPostingLive.selector);
        ledger.post(other, TURN, signed);
        vm.warp(postedAt + WINDOW + EPOCH + bound(late, 0, 1 << 30));
        ledger.post(other, TURN, signed);
        (EpochRoot memory root, uint64 since, uint64 signers) = ledger.live();
        check(keccak256(abi.encode(root)) == keccak256(abi.encode(other)), "the later statement");
        same(since, block.timestamp, "posted anew");
        same(signers, 14, "its own signers");
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
        same(ledger.nextEpoch(), 2, "final");
        same(distributor.grantedPoints(), 10, "what it granted, and nothing of the other");
    }

    /// An honest posting that expired because of a slow chain can become final until it is replaced.
    function test_an_expired_posting_can_become_final_until_it_is_replaced() external {
        uint256 postedAt = _post(statement(0, [uint256(7), 3, 1, 0], none));
        vm.warp(postedAt + WINDOW + 5 * EPOCH);
        ledger.finalise();
        same(ledger.nextEpoch(), 1, "final");
    }

    /// The next posting does not add to a rejected one.
    function test_a_rejected_posting_does_not_change_the_base() external {
        for (uint64 epoch = 0; epoch < 2; ++epoch) {
            uint256[COUNT] memory before = [7 * uint256(epoch), 3 * epoch, epoch, 0];
            _postAndReject(statement(epoch, [uint256(7), 3, 1, 0], before));
            EpochRoot memory root = statement(epoch, [uint256(7), 3, 1, 0], before);
            ledger.post(root, TURN, signatures(7, root));
            vm.prank(address(verifier));
            ledger.reject();
            root.archiveDigest = keccak256("another");
            vm.warp(_post(root) + WINDOW);
            ledger.finalise();
        }
        same(ledger.nextEpoch(), 2, "both are final");
    }

    function testFuzz_only_the_verifier_rejects(address sender) external {
        vm.assume(sender != address(verifier));
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        vm.prank(sender);
        ledger.reject();
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        vm.prank(sender);
        ledger.strike(auditors[0], 0);
    }

    /// A posting that is rejected, before another one of the same epoch.
    function _postAndReject(EpochRoot memory root) private {
        EpochRoot memory other = root;
        bytes32 archive = root.archiveDigest;
        other.archiveDigest = keccak256("rejected");
        _post(other);
        vm.prank(address(verifier));
        ledger.reject();
        (, uint64 postedAt,) = ledger.live();
        same(postedAt, 0, "rejected");
        root.archiveDigest = archive;
    }

    function _post(EpochRoot memory root) private returns (uint256 postedAt) {
        postedAt = afterEpoch(root.epoch) > block.timestamp ? afterEpoch(root.epoch) : block.timestamp;
        vm.warp(postedAt);
        ledger.post(root, TURN, signatures(7, root));
    }

    function _finals(Vm.Log[] memory logs) private pure returns (Vm.Log[] memory finals) {
        uint256 count = 0;
        finals = new Vm.Log[](logs.length);
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == EpochLedger.EpochFinal.selector) finals[count++] = logs[i];
        }
        assembly ("memory-safe") {
            mstore(finals, count)
        }
    }
}
