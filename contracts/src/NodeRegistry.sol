// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {RewardDistributor} from "./RewardDistributor.sol";

/// @title Records which node keys each account claims.
/// @notice An account claims an Ed25519 node key until a time of its choice. A claim proves nothing about the key,
///         because verifying an Ed25519 signature in the EVM is expensive: several accounts may claim the same key.
///         Clients only count the claim of the account that the node's certificate names, which both keys signed.
/// @dev Claims are stored by account, not by key, so claiming another node's key has no effect on that node. No owner.
contract NodeRegistry {
    /// @notice Most node keys that an account can claim at a time. It bounds an account's share of the peer lists.
    uint256 public constant MAX_LIVE_NODES = 4;

    struct Binding {
        bytes32 nodeKey;
        /// Unix time in seconds at which the claim ends; 0 if the place is free.
        uint64 notAfter;
    }

    /// @notice The distributor that records when an account was enrolled, which bounds what it can be paid.
    RewardDistributor public immutable distributor;
    /// @notice Block of the deployment, from which clients read events.
    uint256 public immutable deploymentBlock = block.number;

    mapping(address account => Binding[MAX_LIVE_NODES]) private _bindings;

    event NodeRegistered(address indexed account, bytes32 indexed nodeKey, uint64 notAfter);
    event NodeRevoked(address indexed account, bytes32 indexed nodeKey);

    error EmptyNodeKey();
    error AlreadyExpired(uint64 notAfter);
    error TooManyNodes(address account);
    error NotRegistered(address account, bytes32 nodeKey);

    /// @param distributor_ The distributor of the swarm's ledger.
    constructor(RewardDistributor distributor_) {
        distributor = distributor_;
    }

    /// @notice Claim a node key for the sender, or change the end of the sender's claim on it. The first claim enrols
    ///         the sender with the distributor.
    /// @param nodeKey Ed25519 public key of the node, not zero.
    /// @param notAfter Unix time in seconds at which the claim ends.
    /// @custom:reverts EmptyNodeKey if the key is zero.
    /// @custom:reverts AlreadyExpired if the end is not in the future.
    /// @custom:reverts TooManyNodes if the sender has `MAX_LIVE_NODES` other claims.
    function register(bytes32 nodeKey, uint64 notAfter) external {
        if (nodeKey == 0) revert EmptyNodeKey();
        if (notAfter <= block.timestamp) revert AlreadyExpired(notAfter);
        _bindings[msg.sender][_place(msg.sender, nodeKey)] = Binding(nodeKey, notAfter);
        emit NodeRegistered(msg.sender, nodeKey, notAfter);
        distributor.enrol(msg.sender);
    }

    /// @notice End the sender's claim on a node key.
    /// @param nodeKey The node key; the claim may have expired already.
    /// @custom:reverts NotRegistered if the sender has no such claim.
    function revoke(bytes32 nodeKey) external {
        Binding[MAX_LIVE_NODES] storage places = _bindings[msg.sender];
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].notAfter != 0 && places[i].nodeKey == nodeKey) {
                delete places[i];
                emit NodeRevoked(msg.sender, nodeKey);
                return;
            }
        }
        revert NotRegistered(msg.sender, nodeKey);
    }

    /// @notice Whether an account claims a node key at the time of the block.
    /// @param account The account.
    /// @param nodeKey The node key.
    function isLive(address account, bytes32 nodeKey) external view returns (bool) {
        Binding[MAX_LIVE_NODES] storage places = _bindings[account];
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].nodeKey == nodeKey && places[i].notAfter > block.timestamp) return true;
        }
        return false;
    }

    /// @notice Return the node keys that an account claims at the time of the block.
    /// @param account The account.
    /// @return keys At most `MAX_LIVE_NODES` keys, in any order.
    function liveNodes(address account) external view returns (bytes32[] memory keys) {
        Binding[MAX_LIVE_NODES] storage places = _bindings[account];
        keys = new bytes32[](MAX_LIVE_NODES);
        uint256 count = 0;
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].notAfter > block.timestamp) keys[count++] = places[i].nodeKey;
        }
        // Shortens the array that was just allocated.
        assembly ("memory-safe") {
            mstore(keys, count)
        }
    }

    /// @dev Return the place of the account's claim on the key, or the first place that is free or expired.
    function _place(address account, bytes32 nodeKey) private view returns (uint256 free) {
        Binding[MAX_LIVE_NODES] storage places = _bindings[account];
        free = MAX_LIVE_NODES;
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].nodeKey == nodeKey) return i;
            if (free == MAX_LIVE_NODES && places[i].notAfter <= block.timestamp) free = i;
        }
        if (free == MAX_LIVE_NODES) revert TooManyNodes(account);
    }
}
