// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountBond} from "../src/AccountBond.sol";
import {Swarm} from "./Swarm.sol";

contract AccountBondTest is Swarm {
    uint256 private constant DELAY = 14 * EPOCH + 7;
    address private constant OWNER = address(0xC0FFEE);
    bytes32 private constant PROOF = keccak256("two contents");

    AccountBond private bonds;

    function setUp() external {
        bonds = new AccountBond(ledger, DELAY);
        token.approve(address(bonds), type(uint256).max);
    }

    function test_the_bond_contract_uses_the_ledgers_token() external view {
        check(address(bonds.token()) == address(token), "token");
        check(address(bonds.ledger()) == address(ledger), "ledger");
        same(bonds.exitSeconds(), DELAY, "delay");
    }

    function testFuzz_a_deposit_can_be_withdrawn_after_the_delay(address owner, uint96 amount, uint256 part) external {
        vm.assume(owner != address(0) && owner != address(bonds) && owner != address(this));
        amount = uint96(bound(amount, 1, 1e26));
        part = bound(part, 1, amount);
        uint256 before = token.balanceOf(owner);
        bonds.deposit(owner, amount);
        same(bonds.bonded(owner), amount, "bonded");
        same(token.balanceOf(address(bonds)), amount, "held");
        vm.prank(owner);
        bonds.requestExit(part);
        same(bonds.bonded(owner), amount - part, "counts at once no more");
        vm.warp(GENESIS + DELAY - 1);
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        vm.prank(owner);
        bonds.withdraw();
        vm.warp(GENESIS + DELAY);
        vm.prank(owner);
        bonds.withdraw();
        same(token.balanceOf(owner) - before, part, "withdrawn");
        same(bonds.bonded(owner), amount - part, "left");
        vm.expectPartialRevert(AccountBond.NothingExiting.selector);
        vm.prank(owner);
        bonds.withdraw();
    }

    function test_a_second_exit_restarts_the_delay() external {
        bonds.deposit(OWNER, 10);
        vm.prank(OWNER);
        bonds.requestExit(4);
        vm.warp(GENESIS + DELAY);
        vm.prank(OWNER);
        bonds.requestExit(1);
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        vm.prank(OWNER);
        bonds.withdraw();
        vm.warp(GENESIS + 2 * DELAY);
        vm.prank(OWNER);
        bonds.withdraw();
        same(token.balanceOf(OWNER), 5, "both");
    }

    function test_an_exit_is_limited_to_the_own_bond() external {
        bonds.deposit(OWNER, 10);
        vm.expectPartialRevert(AccountBond.NotThatMuchBonded.selector);
        bonds.requestExit(1);
        vm.prank(OWNER);
        vm.expectPartialRevert(AccountBond.NotThatMuchBonded.selector);
        bonds.requestExit(11);
        vm.prank(OWNER);
        vm.expectPartialRevert(AccountBond.NotThatMuchBonded.selector);
        bonds.requestExit(0);
        vm.expectPartialRevert(AccountBond.NothingDeposited.selector);
        bonds.deposit(OWNER, 0);
    }

    /// A bond deposited and released in one block counts in no block, and is returned after the whole delay.
    function test_a_bond_of_a_single_block_does_not_count() external {
        bonds.deposit(OWNER, 10);
        vm.prank(OWNER);
        bonds.requestExit(10);
        same(bonds.bonded(OWNER), 0, "at the block's end");
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        vm.prank(OWNER);
        bonds.withdraw();
    }

    function test_the_history_contains_every_change() external {
        (bytes32 history, uint256 changedIn) = bonds.lastChange();
        check(history == bonds.EMPTY_HISTORY() && changedIn == 0, "empty");
        bonds.deposit(OWNER, 10);
        history = keccak256(abi.encode(OWNER, uint256(10), history, uint256(0)));
        _requireHistory(history);
        vm.prank(OWNER);
        bonds.requestExit(3);
        history = keccak256(abi.encode(OWNER, uint256(7), history, block.number));
        _requireHistory(history);
        bonds.deposit(PROVER, 1);
        history = keccak256(abi.encode(PROVER, uint256(1), history, block.number));
        _requireHistory(history);
        vm.warp(GENESIS + DELAY);
        vm.prank(OWNER);
        bonds.withdraw(); // changes nothing that counts
        _requireHistory(history);
        _accuse(0);
        _accuse(1);
        _requireHistory(history);
        _accuse(2);
        _requireHistory(keccak256(abi.encode(OWNER, uint256(0), history, block.number)));
    }

    function testFuzz_a_quorum_burns_the_whole_bond(uint96 amount, uint256 part) external {
        amount = uint96(bound(amount, 1, 1e26));
        part = bound(part, 0, amount);
        bonds.deposit(OWNER, amount);
        if (part != 0) {
            vm.prank(OWNER);
            bonds.requestExit(part);
        }
        _accuse(3);
        _accuse(0);
        same(uint256(bonds.stakeOf(OWNER).bonded) + bonds.stakeOf(OWNER).exiting, amount, "two are too few");
        check(bonds.hasAccused(auditors[0], OWNER, 0) && !bonds.hasAccused(auditors[1], OWNER, 0), "who accused");
        _accuse(1);
        same(token.balanceOf(BURNED), amount, "burned");
        same(uint256(bonds.stakeOf(OWNER).bonded) + bonds.stakeOf(OWNER).exiting, 0, "left");
        same(bonds.accusationOf(OWNER, 0).accusers, 3, "accusers");
        check(bonds.accusationOf(OWNER, 0).slashed, "slashed");
    }

    function test_an_auditor_accuses_an_account_once_per_epoch() external {
        bonds.deposit(OWNER, 10);
        _accuse(0);
        vm.expectPartialRevert(AccountBond.AlreadyAccused.selector);
        _accuse(0);
        _accuse(1);
        same(bonds.bonded(OWNER), 10, "two of three");
    }

    /// Otherwise the accusations of one quorum would burn every later bond of the account.
    function test_an_account_is_slashed_once_per_epoch() external {
        bonds.deposit(OWNER, 10);
        _accuse(0);
        _accuse(1);
        _accuse(2);
        bonds.deposit(OWNER, 10);
        vm.expectPartialRevert(AccountBond.AlreadySlashed.selector);
        _accuse(3);
        same(bonds.bonded(OWNER), 10, "the new bond");
    }

    function test_accusations_of_different_epochs_are_counted_separately() external {
        bonds.deposit(OWNER, 10);
        _accuse(0);
        _accuse(1);
        vm.warp(GENESIS + EPOCH);
        vm.prank(auditors[2]);
        bonds.accuse(OWNER, 1, PROOF);
        same(bonds.bonded(OWNER), 10, "two and one");
    }

    function testFuzz_only_auditors_accuse(address sender) external {
        vm.assume(!ledger.isAuditor(sender));
        bonds.deposit(OWNER, 10);
        vm.expectPartialRevert(AccountBond.NotAuditor.selector);
        vm.prank(sender);
        bonds.accuse(OWNER, 0, PROOF);
    }

    /// Otherwise an auditor and its replacement of that epoch would count as two accusers.
    function test_no_accusation_for_a_future_epoch() external {
        bonds.deposit(OWNER, 10);
        vm.warp(GENESIS + EPOCH - 1);
        vm.expectPartialRevert(AccountBond.NotBegun.selector);
        vm.prank(auditors[2]);
        bonds.accuse(OWNER, 1, PROOF);
    }

    function test_an_auditor_without_its_bond_does_not_accuse() external {
        bonds.deposit(OWNER, 10);
        vm.prank(auditors[0]);
        vault.requestExit(1);
        vm.expectPartialRevert(AccountBond.AuditorNotBonded.selector);
        _accuse(0);
    }

    function test_an_account_without_a_bond_is_not_accused() external {
        vm.expectPartialRevert(AccountBond.NothingBonded.selector);
        _accuse(0);
    }

    function test_gas_of_a_bonds_life() external {
        bonds.deposit(PROVER, 1); // the first of all costs more
        bonds.deposit(OWNER, 10);
        vm.snapshotGasLastCall("account_bond", "deposit");
        vm.prank(OWNER);
        bonds.requestExit(4);
        vm.snapshotGasLastCall("account_bond", "request_exit");
        _accuse(0);
        vm.snapshotGasLastCall("account_bond", "accuse");
        _accuse(1);
        _accuse(2);
        vm.snapshotGasLastCall("account_bond", "accuse_and_slash");
    }

    function _accuse(uint256 auditor) private {
        vm.prank(auditors[auditor]);
        bonds.accuse(OWNER, 0, PROOF);
    }

    function _requireHistory(bytes32 expected) private view {
        (bytes32 history, uint256 changedIn) = bonds.lastChange();
        check(history == expected, "history");
        same(changedIn, block.number, "block");
    }
}
