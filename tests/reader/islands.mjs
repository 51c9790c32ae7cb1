// Islands: section 5.1.
import { bigOf } from "./encoding.mjs";
import { H, tag } from "./hashes.mjs";

const EPOCHS_THAT_COUNT = 12n;
const EPOCHS_OF_FEW = 6; // in a row, before islands merge

function numberOf(digest) {
  return bigOf(digest.subarray(0, 8));
}

function before(epoch) {
  return (epoch > 1n ? epoch : 1n) - 1n;
}

// The epoch whose beacon draws the home of an account, or what the node with this key visits.
export function drawnIn(manifest, name, epoch) {
  const period = manifest.islands.periodEpochs;
  const offset = numberOf(H(tag("island-offset"), manifest.swarmId, name)) % period;
  const last = before(epoch);
  const drawn = last - ((last + offset) % period);
  return drawn > 0n ? drawn : 0n;
}

// `beacon` is a function from an epoch to its beacon; `count` is K(epoch).
export function homeOf(manifest, account, epoch, count, beacon) {
  if (count === 1n) return 0n;
  const drawn = beacon(drawnIn(manifest, account, epoch));
  return numberOf(H(tag("island"), manifest.swarmId, drawn, account)) % count;
}

// The island that a node of the account with this home visits, which is its home where there is no other.
export function visitOf(manifest, node, home, epoch, count, beacon) {
  if (count === 1n) return home;
  const drawn = beacon(drawnIn(manifest, node, epoch));
  const visit = numberOf(H(tag("visit"), manifest.swarmId, drawn, node)) % (count - 1n);
  return visit < home ? visit : visit + 1n;
}

// Of [epoch, points of everybody] of final epochs, oldest first: how many accounts were paid in those that count.
export function paidAccounts(final, epoch) {
  const last = before(epoch);
  const known = final.filter(([of]) => of >= last - EPOCHS_THAT_COUNT);
  const counted = known.length > 0 ? known : final.slice(-1);
  return counted.map(([, points]) => BigInt(points.filter((value) => value > 0n).length));
}

// K from the numbers of paid accounts of the final epochs that count, oldest first.
export function islandCount(islands, paid, oneIn) {
  const accounts = paid.map((each) => each * oneIn);
  let count = 1n;
  accounts.forEach((newest, at) => {
    while (newest > islands.mostAccounts * count && count < islands.mostIslands) count *= 2n;
    const lately = accounts.slice(Math.max(0, at + 1 - EPOCHS_OF_FEW), at + 1);
    const areFew = () => lately.every((each) => each < islands.leastAccounts * count);
    while (lately.length === EPOCHS_OF_FEW && count > 1n && areFew()) count /= 2n;
  });
  return count;
}
