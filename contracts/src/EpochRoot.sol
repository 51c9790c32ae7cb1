// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice What auditors agree an epoch's contributions to be. They sign it with the turn in which it was
///         proposed (EIP-712): in another turn an auditor may sign another statement, in one turn never two.
struct EpochRoot {
    uint64 epoch;
    /// The cumulative root that this one adds to: the last final epoch's, zero before the first.
    bytes32 baseRoot;
    /// Root of the tree of every account's points of this epoch; see `SumTree`.
    bytes32 contributionRoot;
    /// Root of the tree of every account's points of all epochs up to this one.
    bytes32 cumulativeRoot;
    /// Sum of the points of this epoch.
    uint256 total;
    /// SHA-256 of the archive from which everyone can recompute the roots.
    bytes32 archiveDigest;
}

/// @notice What became final: the data of an `EpochFinal` event, whose hash is in the next one's or in the state.
struct FinalEpoch {
    EpochRoot root;
    uint64 signers;
    uint64 postedAt;
    bytes32 previousHistory;
    uint64 previousBlock;
}

/// @title The side of the epoch ledger that the verifier of fraud proofs works with.
interface IDisputedLedger {
    /// @notice The posting that may still be challenged; reverts if there is none.
    function liveRoot() external view returns (EpochRoot memory);

    /// @notice The posting that may still be challenged, when it was posted and who signed it; see the ledger.
    function live() external view returns (EpochRoot memory root, uint64 postedAt, uint64 signers);

    /// @notice What names a statement for ever, whoever signs it and in which turn.
    function epochRootDigest(EpochRoot calldata root) external view returns (bytes32);

    /// @notice How long a posting can be challenged, in seconds.
    function challengeSeconds() external view returns (uint256);

    /// @notice What an auditor must have bonded for its signature to count, in the token's smallest unit.
    function auditorBond() external view returns (uint256);

    /// @notice Keep the live posting from becoming final until `release`: a question waits for its answer. Only for
    ///         the verifier of fraud proofs.
    function hold() external;

    /// @notice Take back one `hold`. Only for the verifier of fraud proofs.
    function release() external;

    /// @notice What an auditor signs (EIP-712), bound to this chain and this contract.
    function approvalDigest(EpochRoot calldata root, uint32 turn) external view returns (bytes32);

    /// @notice Whether an account's signatures count in any epoch: what it signed for two can be proven for ever.
    function isAuditor(address account) external view returns (bool);

    /// @notice Whether an account's signatures count in an epoch, as far as it is announced.
    function isAuditorIn(address account, uint64 epoch) external view returns (bool);

    /// @notice Drop the live posting for ever. Only for the verifier of fraud proofs.
    /// @return signers Whose signatures it carried.
    function reject() external returns (address[] memory signers);

    /// @notice Require that these epochs are the last final ones.
    /// @param newestFirst Without a gap.
    /// @return name Hash of the oldest of them, which no other epoch has.
    function requireFinal(FinalEpoch[] calldata newestFirst) external view returns (bytes32 name);

    /// @notice Go on from the root that the oldest of the last final epochs added to. Only for the verifier of fraud
    ///         proofs.
    function recall(FinalEpoch[] calldata newestFirst) external;

    /// @notice Take one auditor's signature from an epoch's live posting, if it is there; without a quorum the
    ///         posting waits for others. Only for the verifier of fraud proofs.
    function strike(address auditor, uint64 epoch) external;
}
