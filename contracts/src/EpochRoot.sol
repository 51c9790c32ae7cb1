// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The statement that auditors sign about an epoch (EIP-712), together with the turn in which it was proposed.
///         In one turn an auditor may sign one statement; in a later turn it may sign another one.
struct EpochRoot {
    uint64 epoch;
    /// The cumulative root of the last final epoch, to which this epoch adds; zero before the first final epoch.
    bytes32 baseRoot;
    /// Root of the tree of all accounts' points of this epoch; see `SumTree`.
    bytes32 contributionRoot;
    /// Root of the tree of all accounts' points of all epochs up to this one.
    bytes32 cumulativeRoot;
    /// Sum of the points of this epoch.
    uint256 total;
    /// SHA-256 of the archive from which both roots can be recomputed.
    bytes32 archiveDigest;
}

/// @notice The record of a final epoch: the data of its `EpochFinal` event. The hash of the newest record is in the
///         ledger's state, that of every other record is in the record after it.
struct FinalEpoch {
    EpochRoot root;
    uint64 signers;
    uint64 postedAt;
    bytes32 previousHistory;
    uint64 previousBlock;
}

/// @title The part of the epoch ledger that the fraud verifier uses.
interface IDisputedLedger {
    /// @notice Return the statement of the live posting.
    /// @return The statement that can still be challenged or is not made final yet.
    /// @custom:reverts NothingLive if there is no live posting.
    function liveRoot() external view returns (EpochRoot memory);

    /// @notice Return the live posting: the one that can still be challenged or is not made final yet.
    /// @return root Its statement; without meaning if there is no live posting.
    /// @return postedAt Unix time of the posting in seconds; zero if there is no live posting.
    /// @return signers Bit i is set if the auditor at place i of `auditorsIn(root.epoch)` signed it.
    function live() external view returns (EpochRoot memory root, uint64 postedAt, uint64 signers);

    /// @notice Return the digest that identifies a statement, independent of signers and turn.
    /// @param root The statement.
    /// @return Its EIP-712 digest, bound to this chain and this contract.
    function epochRootDigest(EpochRoot calldata root) external view returns (bytes32);

    /// @notice Return the length of the challenge window of a posting, in seconds.
    function challengeSeconds() external view returns (uint256);

    /// @notice Return the bond that an auditor needs for its signatures to count, in the token's smallest unit.
    function auditorBond() external view returns (uint256);

    /// @notice Prevent the live posting from becoming final until `release`, because a question is open.
    /// @custom:reverts OnlyVerifier if the caller is not the fraud verifier.
    /// @custom:reverts NothingLive if there is no live posting.
    function hold() external;

    /// @notice Undo one `hold`.
    /// @custom:reverts OnlyVerifier if the caller is not the fraud verifier.
    function release() external;

    /// @notice Return what an auditor signs to approve a statement.
    /// @param root The statement.
    /// @param turn The turn in which it was proposed.
    /// @return The EIP-712 digest, bound to this chain and this contract.
    function approvalDigest(EpochRoot calldata root, uint32 turn) external view returns (bytes32);

    /// @notice Whether an account is or was an auditor of any epoch, or is announced as one. Two signatures of such an
    ///         account in one turn can be proven at any time.
    /// @param account The account.
    function isAuditor(address account) external view returns (bool);

    /// @notice Whether an account's signatures count in an epoch, according to the announcements so far.
    /// @param account The account.
    /// @param epoch The epoch.
    function isAuditorIn(address account, uint64 epoch) external view returns (bool);

    /// @notice Reject the live posting: it is dropped, and its statement can never be posted again.
    /// @return signers The auditors whose signatures it carried.
    /// @custom:reverts OnlyVerifier if the caller is not the fraud verifier.
    /// @custom:reverts NothingLive if there is no live posting.
    function reject() external returns (address[] memory signers);

    /// @notice Require that the given epochs are the newest final ones.
    /// @param newestFirst Their records, newest first and without a gap.
    /// @return name Hash of the oldest given record, which identifies that epoch's posting.
    /// @custom:reverts NotFinal if they are not, or if none is given.
    function requireFinal(FinalEpoch[] calldata newestFirst) external view returns (bytes32 name);

    /// @notice Recall the newest final epochs: the ledger continues from the root to which the oldest of them added.
    /// @param newestFirst Their records, newest first and without a gap.
    /// @custom:reverts OnlyVerifier if the caller is not the fraud verifier.
    /// @custom:reverts NotFinal if they are not the newest final epochs.
    function recall(FinalEpoch[] calldata newestFirst) external;

    /// @notice Remove an auditor's signature from the live posting of an epoch, if it is there. A posting that has no
    ///         quorum after that cannot become final until other signatures are added.
    /// @param auditor The auditor that signed two statements in one turn.
    /// @param epoch The epoch of these statements.
    /// @custom:reverts OnlyVerifier if the caller is not the fraud verifier.
    function strike(address auditor, uint64 epoch) external;
}
