// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {NodeRegistry} from "../src/NodeRegistry.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Checked} from "./Vm.sol";

/// @notice Registers, revokes and advances time for three accounts and six keys, and keeps its own accounts.
contract RegistryHandler is Checked {
    /// Its ledger is this handler.
    RewardDistributor public immutable distributor = new RewardDistributor(new SapoToken(address(this), 1), 1, CAP);
    NodeRegistry public immutable registry = new NodeRegistry(distributor);
    uint256 private constant CAP = 16;
    /// The expected end of an account's claim on a key.
    mapping(address account => mapping(bytes32 key => uint256)) public ends;
    /// The number of epochs granted when an account first registered, plus 1.
    mapping(address account => uint256) public since;
    uint32 public epochs;
    uint256 public registered;
    uint256 public revoked;
    uint256 private _now = 1_000;

    function account(uint256 seed) public pure returns (address) {
        return address(uint160(0xA0 + seed % 3));
    }

    function key(uint256 seed) public pure returns (bytes32) {
        return bytes32(1 + seed % 6);
    }

    function liveOf(address owner) public view returns (uint256 count) {
        for (uint256 i = 0; i < 6; ++i) {
            if (ends[owner][key(i)] > block.timestamp) ++count;
        }
    }

    function register(uint256 owner, uint256 which, uint256 length) external {
        (address a, bytes32 k) = (account(owner), key(which));
        uint64 end = uint64(block.timestamp + bound(length, 1, 500));
        bool renewed = ends[a][k] > block.timestamp;
        if (!renewed && liveOf(a) == registry.MAX_LIVE_NODES()) {
            vm.expectPartialRevert(NodeRegistry.TooManyNodes.selector);
            vm.prank(a);
            registry.register(k, end);
            return;
        }
        vm.prank(a);
        registry.register(k, end);
        ends[a][k] = end;
        if (since[a] == 0) since[a] = epochs + 1;
        ++registered;
    }

    function revoke(uint256 owner, uint256 which) external {
        (address a, bytes32 k) = (account(owner), key(which));
        if (ends[a][k] <= block.timestamp) return;
        vm.prank(a);
        registry.revoke(k);
        ends[a][k] = 0;
        ++revoked;
    }

    /// @notice Whether the contract's state equals the expected one.
    function verify() external view {
        for (uint256 i = 0; i < 3; ++i) {
            address owner = account(i);
            bytes32[] memory live = registry.liveNodes(owner);
            same(live.length, liveOf(owner), "live claims");
            check(live.length <= 4, "more than four live nodes");
            uint256 most = since[owner] == 0 ? 0 : CAP * (epochs + 1 - since[owner]);
            same(distributor.mostClaimable(owner), most, "what its registration bounds");
            for (uint256 k = 0; k < live.length; ++k) {
                check(ends[owner][live[k]] > block.timestamp, "a claim that is not on the books");
            }
        }
    }

    function wait(uint256 seconds_) external {
        _now += bound(seconds_, 0, 300);
        vm.warp(_now);
        distributor.grant(0, 0, ++epochs);
    }
}

contract NodeRegistryTest is Checked {
    RegistryHandler private handler;

    function setUp() external {
        handler = new RegistryHandler();
        vm.warp(1_000);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_live_claims_equal_the_handlers_and_are_at_most_four() external view {
        handler.verify();
    }

    function test_the_handler_reaches_every_action() external {
        for (uint256 i = 0; i < 5; ++i) {
            handler.register(0, i, 100);
        }
        handler.revoke(0, 1);
        handler.wait(200);
        handler.register(0, 4, 100);
        same(handler.registered(), 5, "registered");
        same(handler.revoked(), 1, "revoked");
    }
}
