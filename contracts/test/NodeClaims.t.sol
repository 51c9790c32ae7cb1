// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {NodeRegistry} from "../src/NodeRegistry.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Checked} from "./Vm.sol";

contract NodeClaimsTest is Checked {
    uint64 private constant NOW = 1_000;
    NodeRegistry private registry;

    function setUp() external {
        vm.warp(NOW);
        vm.roll(33);
        registry = new NodeRegistry(new RewardDistributor(new SapoToken(address(this), 1), 1, 16));
    }

    function test_invalid_registrations_and_revocations_are_refused() external {
        same(registry.deploymentBlock(), 33, "where its events begin");
        same(registry.MAX_LIVE_NODES(), 4, "live nodes");
        vm.expectPartialRevert(NodeRegistry.EmptyNodeKey.selector);
        registry.register(0, NOW + 5);
        vm.expectPartialRevert(NodeRegistry.AlreadyExpired.selector);
        registry.register(_key(1), NOW);
        registry.register(_key(1), NOW + 1);
        check(registry.isLive(address(this), _key(1)), "live");
        check(!registry.isLive(address(0xBEEF), _key(1)), "another account's");
        check(!registry.isLive(address(this), _key(2)), "another key");
        vm.warp(NOW + 1);
        check(!registry.isLive(address(this), _key(1)), "over");
        _are(new bytes32[](0));
        check(!registry.isLive(address(this), 0), "a free place");
    }

    function test_four_claims_at_a_time_and_places_are_reused() external {
        for (uint64 i = 1; i <= 4; ++i) {
            registry.register(_key(i), NOW + 10 * i);
        }
        _are(_keys(1, 2, 3, 4));
        vm.expectPartialRevert(NodeRegistry.TooManyNodes.selector);
        registry.register(_key(5), NOW + 100);
        registry.register(_key(4), NOW + 5); // an earlier end of its own claim
        vm.warp(NOW + 5);
        _are(_keys(1, 2, 3, 0));
        registry.register(_key(5), NOW + 100);
        _are(_keys(1, 2, 3, 5));
        vm.warp(NOW + 10);
        registry.register(_key(6), NOW + 100);
        _are(_keys(6, 2, 3, 5));
        vm.warp(NOW + 30);
        registry.register(_key(7), NOW + 100);
        registry.register(_key(8), NOW + 100);
        _are(_keys(6, 7, 8, 5));
    }

    /// A claim is renewed in its own place, also if an earlier place is free: otherwise it would be stored twice.
    function test_a_claim_is_renewed_in_its_place() external {
        registry.register(_key(1), NOW + 10);
        registry.register(_key(2), NOW + 10);
        registry.revoke(_key(1));
        registry.register(_key(2), NOW + 20);
        _are(_keys(2, 0, 0, 0));
        registry.revoke(_key(2));
        _are(new bytes32[](0));
        vm.expectPartialRevert(NodeRegistry.NotRegistered.selector);
        registry.revoke(_key(2));
        vm.expectPartialRevert(NodeRegistry.NotRegistered.selector);
        registry.revoke(0);
    }

    function test_an_account_revokes_only_its_own_claims() external {
        for (uint64 i = 1; i <= 4; ++i) {
            registry.register(_key(i), NOW + 10);
        }
        vm.prank(address(0xBEEF));
        registry.register(_key(4), NOW + 10);
        vm.prank(address(0xBEEF));
        vm.expectPartialRevert(NodeRegistry.NotRegistered.selector);
        registry.revoke(_key(1));
        registry.revoke(_key(4));
        _are(_keys(1, 2, 3, 0));
        check(registry.isLive(address(0xBEEF), _key(4)), "the other account's");
        registry.revoke(_key(2));
        _are(_keys(1, 3, 0, 0));
        vm.warp(NOW + 10);
        registry.revoke(_key(1)); // expired, but still stored
    }

    function _key(uint256 i) private pure returns (bytes32) {
        return keccak256(abi.encode(i));
    }

    /// The keys of the given numbers; 0 ends the list.
    function _keys(uint256 a, uint256 b, uint256 c, uint256 d) private pure returns (bytes32[] memory keys) {
        uint256[4] memory all = [a, b, c, d];
        uint256 count = 0;
        while (count < 4 && all[count] != 0) ++count;
        keys = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            keys[i] = _key(all[i]);
        }
    }

    function _are(bytes32[] memory expected) private view {
        check(keccak256(abi.encode(registry.liveNodes(address(this)))) == keccak256(abi.encode(expected)), "live nodes");
    }
}
