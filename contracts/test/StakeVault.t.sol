// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {StakeVault} from "../src/StakeVault.sol";
import {Swarm} from "./Swarm.sol";

contract StakeVaultTest is Swarm {
    function testFuzz_a_deposit_can_be_withdrawn_after_the_delay(address owner, uint96 amount, uint256 part) external {
        vm.assume(owner != address(0) && owner != address(vault) && owner != address(this) && vault.bonded(owner) == 0);
        amount = uint96(bound(amount, 1, 1e26));
        part = bound(part, 1, amount);
        uint256 before = token.balanceOf(owner);
        vault.deposit(owner, amount);
        vm.prank(owner);
        vault.requestExit(part);
        vm.warp(GENESIS + vault.exitSeconds() - 1);
        vm.expectPartialRevert(StakeVault.ExitTooEarly.selector);
        vm.prank(owner);
        vault.withdraw();
        vm.warp(GENESIS + vault.exitSeconds());
        vm.prank(owner);
        vault.withdraw();
        same(token.balanceOf(owner) - before, part, "withdrawn");
        same(vault.bonded(owner), amount - part, "left");
    }

    /// A signed statement can be challenged for a window after its posting, which may be one or two epochs late.
    function test_a_bond_can_be_slashed_until_its_signatures_are_final() external view {
        same(vault.exitSeconds(), WINDOW + 2 * EPOCH, "exit delay");
    }

    function testFuzz_an_exiting_bond_is_slashed_too(uint96 amount, uint256 part) external {
        amount = uint96(bound(amount, 1, 1e26));
        address owner = address(0xC0FFEE);
        vault.deposit(owner, amount);
        part = bound(part, 0, amount);
        if (part != 0) {
            vm.prank(owner);
            vault.requestExit(part);
        }
        vm.prank(address(verifier));
        vault.slash(owner, PROVER);
        same(token.balanceOf(PROVER), amount / 2, "half to the prover");
        same(token.balanceOf(BURNED), amount - amount / 2, "half burned");
        StakeVault.Stake memory stake = vault.stakeOf(owner);
        same(uint256(stake.bonded) + stake.exiting, 0, "left");
    }

    function testFuzz_only_the_verifier_slashes(address sender) external {
        vm.assume(sender != address(verifier));
        vm.expectPartialRevert(StakeVault.OnlySlasher.selector);
        vm.prank(sender);
        vault.slash(auditors[0], sender);
    }

    function test_the_exit_delay_is_longer_than_window_and_epoch() external view {
        check(vault.exitSeconds() > WINDOW + EPOCH, "exit delay");
    }
}
