// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Checked} from "./Vm.sol";

/// @notice A deployed ledger with four auditors, three of whom suffice, and four accounts that earn.
contract Swarm is Checked {
    uint256 internal constant SUPPLY = 1e27;
    uint256 internal constant REWARDS = 1e24;
    uint256 internal constant GENESIS = 1_000;
    uint256 internal constant EPOCH = 100;
    uint256 internal constant WINDOW = 30;
    uint256 internal constant CAP = 16;
    uint256 internal constant BUDGET = 50;
    uint256 internal constant BOND = 101;
    uint256 internal constant RATE = 3;
    uint256 internal constant QUORUM = 3;
    uint256 internal constant COUNT = 4;
    /// The turn of all proposals, unless a test names another one.
    uint32 internal constant TURN = 2;
    address internal constant BURNED = 0x000000000000000000000000000000000000dEaD;
    address internal constant PROVER = address(0xBEEF);

    SapoToken internal token;
    EpochLedger internal ledger;
    RewardDistributor internal distributor;
    FraudVerifier internal verifier;
    StakeVault internal vault;
    /// Ascending by address.
    uint256[] internal keys;
    address[] internal auditors;
    address[] internal accounts;

    constructor() {
        vm.warp(GENESIS);
        _createAuditors();
        for (uint160 i = 0; i < COUNT; ++i) {
            accounts.push(address((i << 158) + 0xA000)); // told apart by their first two bits
        }
        token = new SapoToken(address(this), SUPPLY);
        ledger = new EpochLedger(
            EpochLedger.Terms(auditors, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, BOND, token, RATE)
        );
        (distributor, verifier, vault) = (ledger.distributor(), ledger.verifier(), ledger.vault());
        for (uint256 i = 0; i < COUNT; ++i) {
            distributor.enrol(accounts[i]);
        }
        token.transfer(address(distributor), REWARDS);
        token.approve(address(vault), type(uint256).max);
        for (uint256 i = 0; i < COUNT; ++i) {
            vault.deposit(auditors[i], BOND);
        }
    }

    function _createAuditors() private {
        for (uint256 key = 1; keys.length < COUNT; ++key) {
            keys.push(key);
        }
        for (uint256 i = 0; i < COUNT; ++i) {
            for (uint256 j = i + 1; j < COUNT; ++j) {
                if (vm.addr(keys[j]) < vm.addr(keys[i])) (keys[i], keys[j]) = (keys[j], keys[i]);
            }
        }
        for (uint256 i = 0; i < COUNT; ++i) {
            auditors.push(vm.addr(keys[i]));
        }
    }

    function signature(uint256 auditor, EpochRoot memory root) internal view returns (bytes memory) {
        return signature(auditor, root, TURN);
    }

    function signature(uint256 auditor, EpochRoot memory root, uint32 turn) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keys[auditor], ledger.approvalDigest(root, turn));
        return abi.encodePacked(r, s, v);
    }

    /// @param signers Bit i: auditor i signs.
    function signatures(uint256 signers, EpochRoot memory root) internal view returns (bytes[] memory signed) {
        uint256 count = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (signers & (1 << i) != 0) ++count;
        }
        signed = new bytes[](count);
        uint256 next = 0;
        for (uint256 i = 0; next < count; ++i) {
            if (signers & (1 << i) != 0) signed[next++] = signature(i, root);
        }
    }

    /// @notice The root over the four accounts' values, computed as the documentation states.
    function treeOf(uint256[COUNT] memory values) internal view returns (bytes32) {
        return _part(values, 0, COUNT);
    }

    /// @notice The end of an account's path: its leaf, or without a value another account's leaf or the empty node.
    function placeOf(uint256[COUNT] memory values, uint256 index) internal view returns (Place memory place) {
        bytes32[] memory down = new bytes32[](2);
        (uint256 first, uint256 size, uint256 depth) = (0, COUNT, 0);
        while (_count(values, first, size) > 1) {
            size /= 2;
            uint256 other = index & size == 0 ? first + size : first;
            if (other == first) first += size;
            down[depth++] = _part(values, other, size);
        }
        place.proof = new bytes32[](depth);
        for (uint256 i = 0; i < depth; ++i) {
            place.proof[i] = down[depth - 1 - i];
        }
        for (uint256 i = first; i < first + size; ++i) {
            if (values[i] != 0) (place.holder, place.value) = (accounts[i], values[i]);
        }
    }

    function proofOf(uint256[COUNT] memory values, uint256 index) internal view returns (bytes32[] memory proof) {
        return placeOf(values, index).proof;
    }

    function sumOf(uint256[COUNT] memory values) internal pure returns (uint256 sum) {
        for (uint256 i = 0; i < COUNT; ++i) {
            sum += values[i];
        }
    }

    /// @notice The honest statement about an epoch's points on top of what was granted before.
    function statement(uint64 epoch, uint256[COUNT] memory points, uint256[COUNT] memory before)
        internal
        view
        returns (EpochRoot memory)
    {
        uint256[COUNT] memory cumulative;
        for (uint256 i = 0; i < COUNT; ++i) {
            cumulative[i] = before[i] + points[i];
        }
        return EpochRoot(
            epoch,
            distributor.cumulativeRoot(),
            treeOf(points),
            treeOf(cumulative),
            sumOf(points),
            keccak256(abi.encode(epoch))
        );
    }

    function afterEpoch(uint64 epoch) internal pure returns (uint256) {
        return GENESIS + (uint256(epoch) + 1) * EPOCH;
    }

    /// The node over some adjacent accounts, whose number is a power of two.
    function _part(uint256[COUNT] memory values, uint256 first, uint256 size) private view returns (bytes32) {
        uint256 sum = 0;
        uint256 holder = first;
        for (uint256 i = first; i < first + size; ++i) {
            if (values[i] == 0) continue;
            (sum, holder) = (sum + values[i], i);
        }
        if (sum == 0) return 0;
        bytes memory content = abi.encodePacked(accounts[holder], uint64(sum));
        if (_count(values, first, size) > 1) {
            content = abi.encodePacked(
                _part(values, first, size / 2), _part(values, first + size / 2, size / 2)
            );
        }
        return bytes32(((uint256(keccak256(content)) >> 64) << 64) | uint64(sum));
    }

    function _count(uint256[COUNT] memory values, uint256 first, uint256 size) private pure returns (uint256 count) {
        for (uint256 i = first; i < first + size; ++i) {
            if (values[i] != 0) ++count;
        }
    }
}
