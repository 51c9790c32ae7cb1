// Settlement: sections 7.2 and 8, and pages (section 4).
import { encode, unhex } from "./encoding.mjs";
import { digestOf, structHash } from "./accounts.mjs";
import { H, tag } from "./hashes.mjs";
import { pointsRoot } from "./trees.mjs";

const ROWS_OF_PAGE = 1024;

export function lowerMedian(numbers) {
  const sorted = [...numbers].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

const smaller = (a, b) => (a < b ? a : b);

// `tallies` and `previous` map accounts, as hexadecimal text, to numbers. Shares are [account, points, cumulative].
export function settle(tallies, previous, pointsPerEpoch, budget) {
  const accounts = [...new Set([...tallies.flatMap((tally) => [...tally.keys()]), ...previous.keys()])].sort();
  const earned = accounts.map((account) =>
    smaller(lowerMedian(tallies.map((tally) => tally.get(account) ?? 0n)), pointsPerEpoch),
  );
  const sum = earned.reduce((total, value) => total + value, 0n);
  return accounts
    .map((account, at) => {
      const points = sum <= budget ? earned[at] : (earned[at] * budget) / sum;
      return [unhex(account), points, (previous.get(account) ?? 0n) + points];
    })
    .filter(([, , cumulative]) => cumulative !== 0n);
}

// The epoch root of a proposal with these shares.
export function epochRoot(epoch, shares, proposalId) {
  return {
    epoch,
    baseRoot: pointsRoot(shares.map(([account, points, cumulative]) => [account, cumulative - points])),
    contributionRoot: pointsRoot(shares.map(([account, points]) => [account, points])),
    cumulativeRoot: pointsRoot(shares.map(([account, , cumulative]) => [account, cumulative])),
    total: shares.reduce((total, [, points]) => total + points, 0n),
    archiveDigest: proposalId,
  };
}

const fieldsOf = (root) => [
  root.epoch, root.baseRoot, root.contributionRoot, root.cumulativeRoot, root.total, root.archiveDigest,
];

export function rootDigest(root, manifest) {
  return digestOf("EpochRoot", fieldsOf(root), manifest.chainId, manifest.ledger);
}

export function approvalDigest(turn, root, chainId, ledger) {
  return digestOf("EpochApproval", [turn, structHash("EpochRoot", fieldsOf(root))], chainId, ledger);
}

export function capOf(pointsPerEpoch, unit, bonded) {
  return bonded >= unit ? pointsPerEpoch : (pointsPerEpoch * bonded) / unit;
}

// The pages of entries or shares, in order.
export function pagesOf(rows) {
  const pages = [];
  for (let at = 0; at < rows.length; at += ROWS_OF_PAGE) pages.push(encode(rows.slice(at, at + ROWS_OF_PAGE)));
  return pages;
}

export function pageDigest(page) {
  return H(tag("page"), page);
}

