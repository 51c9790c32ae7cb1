// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Symbolic} from "./Svm.sol";

/// @notice An auditor that signs one statement per turn of an epoch, and only true ones, never loses its bond.
/// @dev The whole states of verifier and vault are symbolic; the ledger has no live posting.
contract HonestAuditorCheck is Symbolic {
    uint256 private constant CAP = 16;
    address private constant HONEST = address(0xA0A0);
    address private constant OTHER = address(0xB0B0);

    EpochLedger private ledger;
    FraudVerifier private verifier;
    StakeVault private vault;

    function setUp() public {
        SapoToken token = new SapoToken(address(this), 1e30);
        address[] memory auditors = new address[](2);
        (auditors[0], auditors[1]) = (HONEST, OTHER);
        ledger = new EpochLedger(EpochLedger.Terms(auditors, 2, 1_000, 100, 30, 50, CAP, 101, token, 3));
        (verifier, vault) = (ledger.verifier(), ledger.vault());
        token.transfer(address(vault), 1e29);
        svm.enableSymbolicStorage(address(verifier));
        svm.enableSymbolicStorage(address(vault));
    }

    /// Any input as a proof: two statements that it signed are of two turns or epochs, which is no contradiction, and a
    /// statement that it did not sign is not attributed to it.
    function check_no_signatures_convict_an_honest_auditor(
        EpochRoot memory one,
        EpochRoot memory two,
        uint32 turnOfOne,
        uint32 turnOfTwo,
        EpochRoot memory a,
        EpochRoot memory b,
        uint32 turn
    ) external {
        vm.assume(one.epoch != two.epoch || turnOfOne != turnOfTwo);
        bytes memory ofA = svm.createBytes(65, "signature of a");
        bytes memory ofB = svm.createBytes(65, "signature of b");
        _isHonest(ledger.approvalDigest(a, turn), ofA, one, turnOfOne, two, turnOfTwo);
        _isHonest(ledger.approvalDigest(b, turn), ofB, one, turnOfOne, two, turnOfTwo);
        StakeVault.Stake memory before = vault.stakeOf(HONEST);
        (bool done,) = address(verifier).call(abi.encodeCall(verifier.proveEquivocation, (turn, a, b, ofA, ofB)));
        done;
        StakeVault.Stake memory left = vault.stakeOf(HONEST);
        assert(left.bonded == before.bonded && left.exiting == before.exiting);
    }

    /// Signatures cannot be forged: the honest auditor signed every digest with its signature.
    function _isHonest(
        bytes32 digest,
        bytes memory signature,
        EpochRoot memory one,
        uint32 turnOfOne,
        EpochRoot memory two,
        uint32 turnOfTwo
    ) private view {
        (address signer,,) = ECDSA.tryRecover(digest, signature);
        if (signer != HONEST) return;
        vm.assume(digest == ledger.approvalDigest(one, turnOfOne) || digest == ledger.approvalDigest(two, turnOfTwo));
    }
}
