// Runs the blocks of a recorded chain in EthereumJS, and prints what each came to.
//
// Input, as JSON: {chainId, genesis: {address: balance}, blocks: [{number, timestamp, baseFee, gasLimit, raw}]}, numbers
// as decimal text, one transaction per block. Output: {stateRoot of the genesis, blocks: [{gasUsed, status, logs,
// created, stateRoot}]}.
import { readFileSync } from "node:fs";

import { createBlock } from "@ethereumjs/block";
import { createCustomCommon, Hardfork, Mainnet } from "@ethereumjs/common";
import { createTxFromRLP } from "@ethereumjs/tx";
import { bytesToHex, createAccount, createAddressFromString, hexToBytes } from "@ethereumjs/util";
import { createVM, runTx } from "@ethereumjs/vm";

const recorded = JSON.parse(readFileSync(0, "utf8"));
const common = createCustomCommon({ chainId: recorded.chainId }, Mainnet, { hardfork: Hardfork.Prague });
const vm = await createVM({ common });
for (const [address, balance] of Object.entries(recorded.genesis)) {
  await vm.stateManager.putAccount(createAddressFromString(address), createAccount({ balance: BigInt(balance) }));
}
const root = async () => bytesToHex(await vm.stateManager.getStateRoot());
const log = ([address, topics, data]) => ({ address: bytesToHex(address), topics: topics.map(bytesToHex), data: bytesToHex(data) });

async function run({ number, timestamp, baseFee, gasLimit, raw }) {
  const header = { number: BigInt(number), timestamp: BigInt(timestamp), baseFeePerGas: BigInt(baseFee), gasLimit: BigInt(gasLimit) };
  const block = createBlock({ header }, { common, setHardfork: false });
  const result = await runTx(vm, { block, tx: createTxFromRLP(hexToBytes(raw), { common }), skipHardForkValidation: true });
  return {
    gasUsed: Number(result.totalGasSpent),
    status: result.receipt.status,
    logs: result.receipt.logs.map(log),
    created: result.createdAddress?.toString() ?? null,
    stateRoot: await root(),
  };
}

const found = { stateRoot: await root(), blocks: [] };
for (const block of recorded.blocks) found.blocks.push(await run(block));
console.log(JSON.stringify(found));
