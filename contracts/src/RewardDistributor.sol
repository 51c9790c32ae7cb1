// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

import {MerkleSha256} from "./MerkleSha256.sol";

/// @title The side of the ledger that a distributor reads.
interface IClaimable {
    /// @notice Latest cumulative root, and the points posted in all.
    function claimable() external view returns (bytes32 cumulativeRoot, uint256 cumulativeTotal);
}

/// @title Pays accounts what the epoch ledger grants them.
/// @notice Holds reward tokens only, never stakes: a false root can at worst spend what was set aside for rewards.
///         Anyone funds it by a plain transfer. No owner: tokens leave it only through `claim`.
/// @dev Roots are cumulative, so one claim collects any number of epochs, and an old proof dies with its root.
contract RewardDistributor {
    using SafeERC20 for IERC20;

    /// @notice The epoch ledger, which created this contract.
    IClaimable public immutable ledger;
    IERC20 public immutable token;
    /// @notice In the token's smallest unit.
    uint256 public immutable tokensPerPoint;

    /// @dev Kept one higher: a slot that is never zero costs the first claim a quarter.
    uint256 private _paidPointsPlusOne = 1;
    /// @notice Points paid so far, per account; never falls.
    mapping(address account => uint256 points) public claimed;

    event Claimed(address indexed account, uint256 cumulative, uint256 points, uint256 tokens);

    error WrongProof(address account, uint256 cumulative);
    error NothingToClaim(address account, uint256 cumulative, uint256 claimed);
    error OverPosted(uint256 points, uint256 posted);
    error NotFunded(uint256 needed, uint256 held);

    constructor(IERC20 token_, uint256 tokensPerPoint_) {
        ledger = IClaimable(msg.sender);
        token = token_;
        tokensPerPoint = tokensPerPoint_;
    }

    /// @notice Pay `account` the points it has not been paid yet. Anyone may send it; only `account` is paid.
    /// @param cumulative The account's points of all epochs, as in the latest cumulative root.
    /// @param proof Siblings from the leaf upwards.
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external {
        (bytes32 root, uint256 posted) = ledger.claimable();
        if (rootOf(account, cumulative, proof) != root) revert WrongProof(account, cumulative);
        uint256 before = claimed[account];
        if (cumulative <= before) revert NothingToClaim(account, cumulative, before);
        uint256 points = cumulative - before;
        uint256 paid = paidPoints() + points;
        if (paid > posted) revert OverPosted(paid, posted);
        uint256 tokens = points * tokensPerPoint;
        uint256 held = token.balanceOf(address(this));
        if (tokens > held) revert NotFunded(tokens, held);

        claimed[account] = cumulative;
        _paidPointsPlusOne = paid + 1;
        emit Claimed(account, cumulative, points, tokens);
        token.safeTransfer(account, tokens);
    }

    /// @notice Points paid so far, all accounts together; never above what the ledger posted in all.
    function paidPoints() public view returns (uint256) {
        return _paidPointsPlusOne - 1;
    }

    /// @notice The root that an account's points and a proof lead to.
    function rootOf(address account, uint256 cumulative, bytes32[] calldata proof) public view returns (bytes32) {
        return MerkleSha256.rootOf(MerkleSha256.leaf(account, cumulative), proof);
    }
}
