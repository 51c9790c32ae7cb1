// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {RewardDistributor} from "../src/RewardDistributor.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Symbolic} from "./Svm.sol";

/// @notice Whatever two roots say, two claims after each of them pay no more than was granted.
/// @dev Bounds: two grants, four claims of two accounts, proofs without words, a cap that never binds: proofs and cap only refuse more
///      claims. Roots, points and values are symbolic. This contract stands where the ledger does, which created it.
contract RewardsCheck is Symbolic {
    RewardDistributor private distributor;

    function setUp() public {
        SapoToken token = new SapoToken(address(this), 1e40);
        distributor = new RewardDistributor(token, 1, type(uint64).max);
        token.transfer(address(distributor), 1e40);
    }

    function check_no_more_is_paid_than_was_granted(
        bytes32[2] memory roots,
        uint32[2] memory points,
        uint64[2] memory ofOne,
        uint64[2] memory ofOther
    ) external {
        _claimAfter(roots, points, ofOne, ofOther);
        assert(distributor.paidPoints() <= distributor.grantedPoints());
        assert(distributor.grantedPoints() == uint256(points[0]) + points[1]);
    }

    /// Must fail: else the check above would hold because no claim is ever paid.
    function reach_all_is_paid(
        bytes32[2] memory roots,
        uint32[2] memory points,
        uint64[2] memory ofOne,
        uint64[2] memory ofOther
    ) external {
        _claimAfter(roots, points, ofOne, ofOther);
        assert(distributor.paidPoints() == 0);
    }

    function _claimAfter(
        bytes32[2] memory roots,
        uint32[2] memory points,
        uint64[2] memory ofOne,
        uint64[2] memory ofOther
    ) private {
        for (uint32 i = 0; i < 2; ++i) {
            distributor.grant(roots[i], points[i], i + 1);
            _claim(address(7), ofOne[i]);
            _claim(address(8), ofOther[i]);
        }
    }

    function _claim(address account, uint64 value) private {
        bytes memory data = abi.encodeCall(distributor.claim, (account, value, new bytes32[](0)));
        (bool done,) = address(distributor).call(data);
        done;
    }
}
