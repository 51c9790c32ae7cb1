// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {RewardDistributor} from "../src/RewardDistributor.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Symbolic} from "./Svm.sol";

/// @notice No more is paid than was granted, by induction: it holds at deployment, and every call preserves it. So it
///         holds after any number of grants and claims, for any roots.
/// @dev The whole state of the distributor is symbolic, and it holds enough tokens. This contract takes the place of
///      the ledger, which created it. Bounds: one token unit per point, and one account whose leaf is the root: other
///      accounts and longer proofs only lead to other words, and the root is any word.
contract RewardsCheck is Symbolic {
    address private constant CLAIMANT = address(7);

    RewardDistributor private distributor;
    SapoToken private token;

    function setUp() public {
        token = new SapoToken(address(this), 1e40);
        distributor = new RewardDistributor(token, 1, 16);
        token.transfer(address(distributor), 1e40);
    }

    /// The base case of the induction.
    function check_nothing_is_paid_at_deployment() external view {
        assert(distributor.paidPoints() == 0 && distributor.grantedPoints() == 0);
    }

    /// A claim adds the same number to all paid points and to the account's, at most the granted points not paid yet.
    function check_a_claim_keeps_paid_below_granted(uint256 cumulative) external {
        (uint256 paid, uint256 granted) = _anyState();
        uint256 before = distributor.claimed(CLAIMANT);
        bool done = _claim(cumulative);
        uint256 points = distributor.paidPoints() - paid;
        assert(distributor.paidPoints() <= distributor.grantedPoints());
        assert(distributor.grantedPoints() == granted);
        assert(distributor.claimed(CLAIMANT) == before + points);
        assert(done ? distributor.claimed(CLAIMANT) == cumulative : points == 0);
    }

    /// It transfers as many tokens.
    function check_a_claim_transfers_the_tokens_of_its_points(uint256 cumulative) external {
        (uint256 paid,) = _anyState();
        vm.assume(distributor.payoutOf(CLAIMANT) != address(distributor)); // it would pay itself
        _claim(cumulative);
        uint256 moved = 1e40 - token.balanceOf(address(distributor));
        assert(moved == distributor.paidPoints() - paid);
    }

    /// The ledger increases the granted points, and nobody the paid points.
    function check_a_grant_keeps_paid_below_granted(address sender, bytes32 root, uint256 points, uint32 epochs)
        external
    {
        (uint256 paid, uint256 granted) = _anyState();
        vm.prank(sender);
        (bool done,) = address(distributor).call(abi.encodeCall(distributor.grant, (root, points, epochs)));
        if (done) assert(sender == address(this));
        _is(paid, done ? granted + points : granted);
    }

    function check_other_calls_keep_paid_below_granted(address sender, address account, bytes32 root, uint256 which)
        external
    {
        (uint256 paid, uint256 granted) = _anyState();
        bytes memory data = abi.encodeCall(distributor.goBack, (root));
        if (which == 1) data = abi.encodeCall(distributor.enrol, (account));
        if (which == 2) data = abi.encodeCall(distributor.setPayout, (account));
        if (which == 3) data = abi.encodeCall(distributor.applyPayout, (account));
        vm.prank(sender);
        (bool done,) = address(distributor).call(data);
        done;
        _is(paid, granted);
    }

    /// Must fail: otherwise the checks above could hold because no claim is ever paid.
    function reach_a_claim_is_paid(uint256 cumulative) external {
        (uint256 paid,) = _anyState();
        _claim(cumulative);
        assert(distributor.paidPoints() == paid);
    }

    function _claim(uint256 cumulative) private returns (bool done) {
        bytes memory data = abi.encodeCall(distributor.claim, (CLAIMANT, cumulative, new bytes32[](0)));
        (done,) = address(distributor).call(data);
    }

    /// @dev Overwrites what the constructor wrote: counters in slot 0, the root in slot 1.
    function _anyState() private returns (uint256 paid, uint256 granted) {
        svm.enableSymbolicStorage(address(distributor));
        vm.store(address(distributor), 0, svm.createBytes32("counters"));
        vm.store(address(distributor), bytes32(uint256(1)), svm.createBytes32("root"));
        (paid, granted) = (distributor.paidPoints(), distributor.grantedPoints());
        vm.assume(paid <= granted);
    }

    function _is(uint256 paid, uint256 granted) private view {
        assert(distributor.paidPoints() == paid && distributor.grantedPoints() == granted);
        assert(token.balanceOf(address(distributor)) == 1e40);
    }
}
