// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Faucet} from "../src/Faucet.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Checked} from "./Vm.sol";

/// @notice A receiver of coins that uses all the gas of the sender.
contract Burner {
    receive() external payable {
        while (true) {}
    }
}

contract FaucetTest is Checked {
    address payable private constant NEWCOMER = payable(address(0xC0FFEE));
    SapoToken private token;
    Faucet private faucet;

    function setUp() external {
        vm.warp(5);
        token = new SapoToken(address(this), 1_000);
        faucet = new Faucet(token, 10, 4);
    }

    function _fund(uint256 tokens, uint256 coin) private {
        token.transfer(address(faucet), tokens);
        vm.deal(address(faucet), coin);
    }

    function test_a_drip_gives_tokens_and_coins_once_a_day() external {
        check(address(faucet.token()) == address(token), "token");
        check(faucet.tokensPerDrip() == 10 && faucet.weiPerDrip() == 4, "a drip");
        same(faucet.INTERVAL(), 86_400, "a day");
        _fund(100, 100);
        vm.expectEmit(address(faucet));
        emit Faucet.Dripped(NEWCOMER, 10, 4);
        faucet.drip(NEWCOMER);
        _has(10, 4);
        same(faucet.nextDripAt(NEWCOMER), 5 + 86_400, "when again");
        vm.warp(5 + 86_399);
        vm.expectPartialRevert(Faucet.TooEarly.selector);
        faucet.drip(NEWCOMER);
        faucet.drip(payable(address(0xBEEF)));
        vm.warp(5 + 86_400);
        faucet.drip(NEWCOMER);
        _has(20, 8);
    }

    function test_a_drip_gives_the_rest_of_the_faucet() external {
        vm.expectPartialRevert(Faucet.Empty.selector);
        faucet.drip(NEWCOMER);
        _fund(3, 1);
        faucet.drip(NEWCOMER);
        _has(3, 1);
    }

    function test_a_drip_of_only_tokens_or_only_coins() external {
        _fund(7, 0);
        faucet.drip(NEWCOMER);
        _has(7, 0);
        vm.warp(5 + 86_400);
        _fund(0, 2);
        faucet.drip(NEWCOMER);
        _has(7, 2);
    }

    function test_a_drip_of_one_unit_and_none_of_zero() external {
        _fund(1, 1);
        faucet.drip(NEWCOMER);
        _has(1, 1);
        token.transfer(address(faucet), 5);
        vm.recordLogs();
        faucet.drip(payable(address(0xBEEF)));
        same(vm.getRecordedLogs().length, 2, "one transfer and the drip");
        vm.warp(5 + 86_400);
        vm.deal(address(faucet), 3);
        faucet.drip(NEWCOMER);
        same(vm.getRecordedLogs().length, 1, "the drip alone");
        _has(1, 4);
    }

    /// A drip calls the receiver, whose gas the sender of the drip pays.
    function test_a_contract_gets_no_drip() external {
        _fund(100, 100);
        uint256 before = gasleft();
        address payable burner = payable(address(new Burner()));
        vm.expectPartialRevert(Faucet.HasCode.selector);
        faucet.drip(burner);
        check(before - gasleft() < 200_000, "gas");
        same(faucet.nextDripAt(burner), 0, "not served");
        vm.expectPartialRevert(Faucet.HasCode.selector);
        faucet.drip(payable(address(this)));
        faucet.drip(NEWCOMER);
        vm.etch(NEWCOMER, hex"00"); // also an account that was served before it had code
        vm.expectPartialRevert(Faucet.HasCode.selector);
        faucet.drip(NEWCOMER);
        _has(10, 4);
    }

    function test_anyone_can_fill_the_faucet() external {
        vm.deal(address(this), 9);
        (bool done,) = address(faucet).call{value: 9}("");
        check(done, "coin");
        same(address(faucet).balance, 9, "coin");
        vm.deal(address(this), 3);
        same(address(new Faucet{value: 3}(token, 1, 1)).balance, 3, "coin from the start");
    }

    function _has(uint256 tokens, uint256 coin) private view {
        same(token.balanceOf(NEWCOMER), tokens, "tokens");
        same(NEWCOMER.balance, coin, "coin");
    }
}
