// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Replacements of auditors: whose signatures count in which epoch, and what former auditors can do.
contract ReplacementTest is Swarm {
    uint64 private constant FIRST = 8;
    /// Keys of the entering auditors, other than those of the first four.
    uint256 private constant NEW = 77;
    uint256 private constant NEWER = 78;
    uint256[COUNT] private none;

    function signedBy(uint256[] memory signers, bytes32 digest) private pure returns (bytes[] memory found) {
        for (uint256 i = 0; i < signers.length; ++i) {
            for (uint256 j = i + 1; j < signers.length; ++j) {
                if (vm.addr(signers[j]) < vm.addr(signers[i])) (signers[i], signers[j]) = (signers[j], signers[i]);
            }
        }
        found = new bytes[](signers.length);
        for (uint256 i = 0; i < signers.length; ++i) {
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(signers[i], digest);
            found[i] = abi.encodePacked(r, s, v);
        }
    }

    function three(uint256 a, uint256 b, uint256 c) private pure returns (uint256[] memory found) {
        found = new uint256[](3);
        (found[0], found[1], found[2]) = (a, b, c);
    }

    function replacement(uint64 number, uint64 epoch, address leaving, address entering)
        private
        pure
        returns (EpochLedger.Succession memory)
    {
        return EpochLedger.Succession(number, epoch, 0, leaving, entering);
    }

    function announce(EpochLedger.Succession memory change, uint256[] memory signers) private {
        ledger.announceSuccessor(change, signedBy(signers, ledger.successionDigest(change)));
    }

    /// Auditor 1 leaves in epoch 8; the entering one has a bond.
    function replaceOne() private {
        announce(replacement(0, FIRST, auditors[1], vm.addr(NEW)), three(keys[0], keys[1], keys[2]));
        vault.deposit(vm.addr(NEW), BOND);
    }

    function post(EpochRoot memory root, uint256[] memory signers) private {
        ledger.post(root, TURN, signedBy(signers, ledger.approvalDigest(root, TURN)));
    }

    function sameAuditors(address[] memory found, address second) private view {
        same(found.length, COUNT, "auditors");
        for (uint256 i = 0; i < COUNT; ++i) {
            check(found[i] == (i == 1 ? second : auditors[i]), "auditor");
        }
    }

    function test_a_replacement_counts_from_its_activation_epoch_on() external {
        replaceOne();
        (address old, address next) = (auditors[1], vm.addr(NEW));
        sameAuditors(ledger.auditorsIn(FIRST - 1), old);
        sameAuditors(ledger.auditorsIn(FIRST), next);
        sameAuditors(ledger.auditors(), old);
        vm.warp(GENESIS + FIRST * EPOCH - 1);
        sameAuditors(ledger.auditors(), old);
        vm.warp(GENESIS + FIRST * EPOCH);
        sameAuditors(ledger.auditors(), next);
        check(ledger.isAuditorIn(old, FIRST - 1) && !ledger.isAuditorIn(old, FIRST), "leaving");
        check(ledger.isAuditorIn(next, FIRST) && !ledger.isAuditorIn(next, FIRST - 1), "entering");
        check(ledger.isAuditor(old) && ledger.isAuditor(next), "both can be convicted");
        EpochLedger.Succession[] memory found = ledger.successions();
        same(found.length, 1, "announcements");
        check(found[0].leaving == old && found[0].entering == next && found[0].successor == 0, "announced");
    }

    /// The last epochs of the former auditors are posted after the change.
    function test_a_posting_is_signed_by_the_auditors_of_its_epoch() external {
        replaceOne();
        EpochRoot memory last = statement(FIRST - 1, [uint256(1), 0, 0, 0], none);
        vm.warp(afterEpoch(FIRST) + 1);
        bytes[] memory mixed = signedBy(three(keys[0], keys[2], NEW), ledger.approvalDigest(last, TURN));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.post(last, TURN, mixed);
        post(last, three(keys[0], keys[1], keys[2]));
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
        EpochRoot memory first = statement(FIRST, [uint256(1), 0, 0, 0], [uint256(1), 0, 0, 0]);
        mixed = signedBy(three(keys[0], keys[1], keys[2]), ledger.approvalDigest(first, TURN));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.post(first, TURN, mixed);
        post(first, three(keys[0], keys[2], NEW));
        (,, uint64 signers) = ledger.live();
        same(signers, 7, "places");
    }

    /// Signatures added after the change must be of the epoch's auditors, too.
    function test_signatures_are_added_by_the_epochs_own_auditors() external {
        replaceOne();
        EpochRoot memory last = statement(FIRST - 1, [uint256(1), 0, 0, 0], none);
        vm.warp(afterEpoch(FIRST) + 1);
        post(last, three(keys[0], keys[2], keys[3]));
        bytes[] memory mixed = signedBy(three(keys[0], keys[2], NEW), ledger.approvalDigest(last, TURN));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.post(last, TURN, mixed);
        post(last, three(keys[0], keys[1], keys[2]));
        (,, uint64 signers) = ledger.live();
        same(signers, 15, "places");
    }

    function test_the_auditor_of_the_first_place_can_be_replaced() external {
        announce(replacement(0, FIRST, auditors[0], vm.addr(NEW)), three(keys[0], keys[1], keys[2]));
        check(ledger.auditorsIn(FIRST - 1)[0] == auditors[0], "before");
        check(ledger.auditorsIn(FIRST)[0] == vm.addr(NEW), "from then on");
    }

    /// A dishonest quorum announces a replacement for a far epoch whose lowest 40 bits are the current epoch: if only
    /// these were stored, its account would be an auditor at once, without the time lock.
    function test_an_epoch_above_40_bits_is_refused_in_a_replacement() external {
        uint64 epoch = (1 << 40) + 1;
        EpochLedger.Succession memory far = replacement(0, epoch, auditors[1], vm.addr(NEW));
        refuse(far, SafeCast.SafeCastOverflowedUintDowncast.selector);
        check(!ledger.isAuditor(vm.addr(NEW)) && ledger.isAuditorIn(auditors[1], FIRST), "as before");
    }

    function test_an_entering_auditor_without_a_bond_does_not_count() external {
        announce(replacement(0, FIRST, auditors[1], vm.addr(NEW)), three(keys[0], keys[1], keys[2]));
        vm.warp(afterEpoch(FIRST));
        EpochRoot memory root = statement(FIRST, [uint256(1), 0, 0, 0], none);
        bytes[] memory signed = signedBy(three(keys[0], keys[2], NEW), ledger.approvalDigest(root, TURN));
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, TURN, signed);
    }

    /// The place of a former auditor belongs to its successor, which signed once.
    function test_a_former_auditor_cannot_strike_its_successors_signature() external {
        replaceOne();
        vm.warp(afterEpoch(FIRST));
        EpochRoot memory root = statement(FIRST, [uint256(1), 0, 0, 0], none);
        EpochRoot memory other = root;
        post(root, three(keys[0], keys[2], NEW));
        other = abi.decode(abi.encode(root), (EpochRoot));
        other.archiveDigest = 0;
        verifier.proveEquivocation(TURN, root, other, signature(1, root), signature(1, other));
        (, uint64 postedAt, uint64 signers) = ledger.live();
        check(postedAt != 0, "live");
        same(signers, 7, "signers");
        same(vault.bonded(auditors[1]), 0, "who signed two loses its bond");
        same(vault.bonded(vm.addr(NEW)), BOND, "who signed one keeps it");
    }

    function test_a_false_root_costs_its_signers_their_bonds() external {
        replaceOne();
        EpochRoot memory last = statement(FIRST - 1, [CAP + 1, 0, 0, 0], none);
        vm.warp(afterEpoch(FIRST));
        post(last, three(keys[0], keys[1], keys[2]));
        vm.prank(PROVER);
        verifier.proveOverCap(accounts[0], placeOf([CAP + 1, uint256(0), 0, 0], 0));
        same(vault.bonded(auditors[1]), 0, "the old one signed");
        same(vault.bonded(vm.addr(NEW)), BOND, "the new one did not");
        vault.deposit(auditors[0], BOND);
        vault.deposit(auditors[2], BOND);
        EpochRoot memory first = statement(FIRST, [CAP + 1, 0, 0, 0], none);
        post(first, three(keys[0], keys[2], NEW));
        vm.prank(PROVER);
        verifier.proveOverCap(accounts[0], placeOf([CAP + 1, uint256(0), 0, 0], 0));
        same(vault.bonded(vm.addr(NEW)), 0, "now it did");
    }

    function test_announcements_are_signed_by_the_auditors_of_the_current_epoch() external {
        replaceOne();
        vm.warp(GENESIS + FIRST * EPOCH);
        EpochLedger.Succession memory second = replacement(1, 2 * FIRST, auditors[0], vm.addr(NEWER));
        bytes[] memory signed = signedBy(three(keys[0], keys[1], keys[2]), ledger.successionDigest(second));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.announceSuccessor(second, signed);
        announce(second, three(NEW, keys[2], keys[3]));
        check(ledger.auditorsIn(2 * FIRST)[0] == vm.addr(NEWER), "second change");
    }

    function test_a_place_can_be_replaced_twice() external {
        replaceOne();
        vm.warp(GENESIS + FIRST * EPOCH);
        announce(replacement(1, 2 * FIRST, vm.addr(NEW), vm.addr(NEWER)), three(keys[0], keys[2], keys[3]));
        sameAuditors(ledger.auditorsIn(FIRST - 1), auditors[1]);
        sameAuditors(ledger.auditorsIn(2 * FIRST - 1), vm.addr(NEW));
        sameAuditors(ledger.auditorsIn(2 * FIRST), vm.addr(NEWER));
    }

    function test_invalid_replacements_are_refused() external {
        address stranger = vm.addr(NEW);
        refuse(replacement(0, FIRST, auditors[1], auditors[2]), EpochLedger.BadReplacement.selector);
        refuse(replacement(0, FIRST, stranger, vm.addr(NEWER)), EpochLedger.BadReplacement.selector);
        refuse(replacement(0, FIRST, address(0), stranger), EpochLedger.BadReplacement.selector);
        EpochLedger.Succession memory nobody = replacement(0, FIRST, auditors[1], address(0));
        refuse(nobody, EpochLedger.NothingChanges.selector);
        nobody.successor = keccak256("other terms");
        refuse(nobody, EpochLedger.BadReplacement.selector);
        replaceOne();
        vm.warp(GENESIS + FIRST * EPOCH);
        EpochLedger.Succession memory back = replacement(1, 2 * FIRST, auditors[2], auditors[1]);
        bytes[] memory signed = signedBy(three(NEW, keys[2], keys[3]), ledger.successionDigest(back));
        vm.expectPartialRevert(EpochLedger.BadReplacement.selector);
        ledger.announceSuccessor(back, signed);
        back = replacement(1, 2 * FIRST, auditors[1], vm.addr(NEWER));
        signed = signedBy(three(NEW, keys[2], keys[3]), ledger.successionDigest(back));
        vm.expectPartialRevert(EpochLedger.BadReplacement.selector);
        ledger.announceSuccessor(back, signed);
    }

    function refuse(EpochLedger.Succession memory change, bytes4 error_) private {
        bytes[] memory signed = signedBy(three(keys[0], keys[1], keys[2]), ledger.successionDigest(change));
        vm.expectPartialRevert(error_);
        ledger.announceSuccessor(change, signed);
    }

    function test_a_withdrawn_replacement_restores_the_state_before() external {
        replaceOne();
        ledger.withdrawSuccessor(signedBy(three(keys[0], keys[1], keys[2]), ledger.withdrawalDigest(0)));
        sameAuditors(ledger.auditorsIn(FIRST), auditors[1]);
        check(!ledger.isAuditor(vm.addr(NEW)) && ledger.isAuditorIn(auditors[1], FIRST), "as before");
        announce(replacement(1, FIRST, auditors[1], vm.addr(NEW)), three(keys[0], keys[1], keys[2]));
        sameAuditors(ledger.auditorsIn(FIRST), vm.addr(NEW));
    }

    /// An announced auditor that signed two statements loses its bond; after the withdrawal it is no auditor.
    function test_a_withdrawn_entering_auditor_is_no_auditor() external {
        replaceOne();
        EpochRoot memory a = statement(FIRST, none, none);
        EpochRoot memory b = statement(FIRST, none, none);
        b.archiveDigest = 0;
        (bytes memory ofA, bytes memory ofB) = (signatureOfNew(a), signatureOfNew(b));
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        same(vault.bonded(vm.addr(NEW)), 0, "bond");
        vm.expectPartialRevert(FraudVerifier.AlreadyProven.selector);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        ledger.withdrawSuccessor(signedBy(three(keys[0], keys[1], keys[2]), ledger.withdrawalDigest(0)));
        vm.expectPartialRevert(FraudVerifier.NotAuditor.selector);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
    }

    function signatureOfNew(EpochRoot memory root) private view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(NEW, ledger.approvalDigest(root, TURN));
        return abi.encodePacked(r, s, v);
    }

    /// An attacker whose two accounts replace each other has one vote.
    function test_the_auditors_of_one_place_accuse_once_together() external {
        AccountBond bonds = new AccountBond(ledger, 1_000);
        token.approve(address(bonds), 10);
        bonds.deposit(accounts[0], 10);
        vm.prank(auditors[1]);
        bonds.accuse(accounts[0], 0, bytes32(uint256(1)));
        replaceOne();
        vm.warp(GENESIS + FIRST * EPOCH);
        vm.expectPartialRevert(AccountBond.NotAuditor.selector);
        vm.prank(vm.addr(NEW));
        bonds.accuse(accounts[0], 0, bytes32(uint256(1)));
        vm.prank(vm.addr(NEW));
        bonds.accuse(accounts[0], FIRST, bytes32(uint256(1)));
    }
}
