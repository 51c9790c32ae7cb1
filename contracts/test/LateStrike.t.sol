// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice One of four auditors, with coins, against the three others: it posts the true root with just a quorum of
///         signatures, its own among them, and convicts itself at the end of the window. In the same transaction it
///         bonds again and posts again, so that nobody else can.
contract Saboteur {
    EpochLedger private immutable ledger;
    FraudVerifier private immutable verifier;
    StakeVault private immutable vault;
    address private immutable auditor;
    uint256 private immutable bond;

    constructor(EpochLedger ledger_, address auditor_, SapoToken token) {
        (ledger, verifier, vault) = (ledger_, ledger_.verifier(), ledger_.vault());
        (auditor, bond) = (auditor_, ledger_.auditorBond());
        token.approve(address(vault), type(uint256).max);
    }

    function strike(
        uint32 turn,
        EpochRoot[2] calldata lies,
        bytes[2] calldata signed,
        EpochRoot calldata root,
        uint32 turnOfRoot,
        bytes[] calldata signatures
    ) external {
        verifier.proveEquivocation(turn, lies[0], lies[1], signed[0], signed[1]);
        vault.deposit(auditor, bond);
        ledger.post(root, turnOfRoot, signatures);
    }
}

contract LateStrikeTest is Swarm {
    uint256 private constant ROUNDS = 5;
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    /// The three others answer each strike with their own signatures, in a block behind it, and make final what they
    /// can. Whatever the saboteur pays, the epoch is final a block after its window.
    function test_one_auditor_with_coins_delays_no_epoch() external {
        Saboteur saboteur = new Saboteur(ledger, auditors[0], token);
        token.transfer(address(saboteur), 10 * BOND);
        EpochRoot memory root = statement(0, points, none);
        bytes[] memory first = signatures(7, root);
        bytes[] memory honest = signatures(14, root);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, first);
        uint256 postedAt = block.timestamp;
        for (uint32 i = 0; i < ROUNDS && ledger.nextEpoch() == 0; ++i) {
            (, uint256 seen,) = ledger.live();
            vm.warp(seen + WINDOW - 1);
            _strike(saboteur, i, root, first);
            _try(abi.encodeCall(ledger.post, (root, TURN, honest)));
            vm.warp(block.timestamp + 1);
            _try(abi.encodeCall(ledger.finalise, ()));
        }
        same(ledger.nextEpoch(), 1, "final");
        same(block.timestamp, postedAt + WINDOW, "in time");
    }

    function _strike(Saboteur saboteur, uint32 turn, EpochRoot memory root, bytes[] memory first) private {
        EpochRoot[2] memory lies = [statement(0, points, none), statement(0, points, none)];
        lies[0].archiveDigest = keccak256("one");
        lies[1].archiveDigest = keccak256("two");
        bytes[2] memory signed = [signature(0, lies[0], turn), signature(0, lies[1], turn)];
        saboteur.strike(turn, lies, signed, root, TURN, first);
    }

    function _try(bytes memory data) private {
        (bool done,) = address(ledger).call(data);
        done;
    }
}
