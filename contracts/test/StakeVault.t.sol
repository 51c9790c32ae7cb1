// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {StakeVault} from "../src/StakeVault.sol";
import {Swarm} from "./Swarm.sol";

contract StakeVaultTest is Swarm {
    function testFuzz_what_goes_in_comes_out_after_the_delay(address owner, uint96 amount, uint256 part) external {
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

    /// What was signed on a bond can be challenged for a window after it was posted, an epoch late or two.
    function test_a_bond_outlasts_the_window_of_what_was_signed_on_it() external view {
        same(vault.exitSeconds(), WINDOW + 2 * EPOCH, "exit delay");
    }

    function testFuzz_slashing_reaches_what_is_on_its_way_out(uint96 amount, uint256 part) external {
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

    function testFuzz_nobody_else_slashes(address sender) external {
        vm.assume(sender != address(verifier));
        vm.expectPartialRevert(StakeVault.OnlySlasher.selector);
        vm.prank(sender);
        vault.slash(auditors[0], sender);
    }

    function test_the_delay_outlasts_window_and_epoch() external view {
        check(vault.exitSeconds() > WINDOW + EPOCH, "exit delay");
    }
}
