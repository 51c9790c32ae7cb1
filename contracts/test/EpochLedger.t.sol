// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {Swarm} from "./Swarm.sol";

contract EpochLedgerTest is Swarm {
    uint256[COUNT] private none;

    function testFuzz_final_only_after_the_window(uint64 epoch, uint256 late, uint256 early) external {
        epoch = uint64(bound(epoch, 0, 1 << 40));
        early = bound(early, 0, WINDOW - 1);
        EpochRoot memory root = statement(epoch, [uint256(7), 3, 1, 0], none);
        uint256 postedAt = afterEpoch(epoch) + bound(late, 0, 1 << 30);
        vm.warp(postedAt);
        ledger.post(root, signatures(7, root));
        vm.warp(postedAt + early);
        vm.expectPartialRevert(EpochLedger.StillChallengeable.selector);
        ledger.finalise();
        vm.warp(postedAt + WINDOW);
        ledger.finalise();
        same(ledger.nextEpoch(), uint256(epoch) + 1, "next epoch");
        check(ledger.record(epoch).cumulativeRoot == distributor.cumulativeRoot(), "what pays is on record");
    }

    function testFuzz_only_a_quorum_posts(uint256 signers) external {
        signers = bound(signers, 0, 15);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(signers, root);
        vm.warp(afterEpoch(0));
        if (signed.length < QUORUM) vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, signed);
        same(ledger.live().signers, signed.length < QUORUM ? 1 : signers, "signers on record");
    }

    function testFuzz_a_changed_statement_is_not_what_was_signed(uint256 field, uint256 value) external {
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        bytes[] memory signed = signatures(7, root);
        field = bound(field, 0, 3);
        if (field == 0) root.contributionRoot = bytes32(value);
        if (field == 1) root.cumulativeRoot = bytes32(value);
        if (field == 2) root.total = bound(value, 0, BUDGET);
        if (field == 3) root.archiveDigest = bytes32(value);
        vm.assume(keccak256(abi.encode(root)) != keccak256(abi.encode(statement(0, [uint256(7), 3, 1, 0], none))));
        vm.warp(afterEpoch(0));
        (bool accepted,) = address(ledger).call(abi.encodeCall(ledger.post, (root, signed)));
        check(!accepted, "accepted under other signatures");
    }

    function testFuzz_never_before_its_end_nor_over_budget(uint64 epoch, uint256 early, uint256 total) external {
        epoch = uint64(bound(epoch, 0, 1 << 40));
        EpochRoot memory root = statement(epoch, [uint256(7), 3, 1, 0], none);
        vm.warp(afterEpoch(epoch) - bound(early, 1, EPOCH));
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.EpochNotOver.selector);
        ledger.post(root, signed);
        vm.warp(afterEpoch(epoch));
        root.total = bound(total, BUDGET + 1, type(uint256).max);
        signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.OverBudget.selector);
        ledger.post(root, signed);
    }

    function testFuzz_nobody_else_rejects(address sender) external {
        vm.assume(sender != address(verifier));
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        vm.warp(afterEpoch(0));
        ledger.post(root, signatures(7, root));
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        vm.prank(sender);
        ledger.reject();
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        vm.prank(sender);
        ledger.strike(auditors[0], 0);
    }
}
