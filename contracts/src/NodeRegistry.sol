// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {RewardDistributor} from "./RewardDistributor.sol";

/// @title Which node keys an account speaks for.
/// @notice An account claims an Ed25519 node key until a time of its choosing. A key proves nothing here: the
///         EVM cannot check Ed25519 cheaply, so several accounts may claim one key, and a claim blocks nobody.
///         Clients count the one claim that the node's own certificate names and both keys signed.
/// @dev Bindings are kept by account, never by key, which is what makes squatting pointless. No owner.
contract NodeRegistry {
    /// @notice Live nodes per account. Bounds what one account can occupy in everyone's peer lists.
    uint256 public constant MAX_LIVE_NODES = 4;

    struct Binding {
        bytes32 nodeKey;
        /// Seconds; the binding is live while the clock is below it. 0 in a free place.
        uint64 notAfter;
    }

    /// @notice Remembers since which epoch an account is registered: what bounds its first claim.
    RewardDistributor public immutable distributor;
    /// @notice Block in which the registry came to be: a reader of its events starts there.
    uint256 public immutable deploymentBlock = block.number;

    mapping(address account => Binding[MAX_LIVE_NODES]) private _bindings;

    event NodeRegistered(address indexed account, bytes32 indexed nodeKey, uint64 notAfter);
    event NodeRevoked(address indexed account, bytes32 indexed nodeKey);

    error EmptyNodeKey();
    error AlreadyExpired(uint64 notAfter);
    error TooManyNodes(address account);
    error NotRegistered(address account, bytes32 nodeKey);

    constructor(RewardDistributor distributor_) {
        distributor = distributor_;
    }

    /// @notice Claim `nodeKey` for the sender until `notAfter` (seconds), or change the end of its live claim.
    function register(bytes32 nodeKey, uint64 notAfter) external {
        if (nodeKey == 0) revert EmptyNodeKey();
        if (notAfter <= block.timestamp) revert AlreadyExpired(notAfter);
        _bindings[msg.sender][_place(msg.sender, nodeKey)] = Binding(nodeKey, notAfter);
        emit NodeRegistered(msg.sender, nodeKey, notAfter);
        distributor.enrol(msg.sender);
    }

    /// @notice End the sender's claim on `nodeKey` now.
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

    /// @notice Whether `account` claims `nodeKey` at this moment.
    function isLive(address account, bytes32 nodeKey) external view returns (bool) {
        Binding[MAX_LIVE_NODES] storage places = _bindings[account];
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].nodeKey == nodeKey && places[i].notAfter > block.timestamp) return true;
        }
        return false;
    }

    /// @notice The node keys that `account` claims at this moment.
    function liveNodes(address account) external view returns (bytes32[] memory keys) {
        Binding[MAX_LIVE_NODES] storage places = _bindings[account];
        keys = new bytes32[](MAX_LIVE_NODES);
        uint256 count = 0;
        for (uint256 i = 0; i < MAX_LIVE_NODES; ++i) {
            if (places[i].notAfter > block.timestamp) keys[count++] = places[i].nodeKey;
        }
        // Only shortens the array that was just allocated.
        assembly ("memory-safe") {
            mstore(keys, count)
        }
    }

    /// @dev The key's own place if the account has one, else the first that is free or has expired.
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
