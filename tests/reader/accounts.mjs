// What accounts sign: section 8.
import { secp256k1 } from "@noble/curves/secp256k1.js";
import { bigOf, bytesOf, concat, hex, isBytes } from "./encoding.mjs";
import { K, ascii } from "./hashes.mjs";

const ORDER = BigInt("0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141");
const DOMAIN = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const ROOT =
  "EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,uint256 total,bytes32 archiveDigest)";
const TYPES = {
  NodeBinding: "NodeBinding(bytes32 nodeKey,bytes32 swarmId,uint64 notBefore,uint64 notAfter)",
  EpochRoot: ROOT,
  EpochApproval: `EpochApproval(uint32 turn,EpochRoot root)${ROOT}`,
  Succession: "Succession(uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering)",
  Withdrawal: "Withdrawal(uint64 number)",
};

// A number, or bytes of at most 32, as one word.
function word(field) {
  if (typeof field === "bigint") return bytesOf(field, 32);
  return concat(new Uint8Array(32 - field.length), field);
}

export function structHash(type, fields) {
  return K(K(ascii(TYPES[type])), ...fields.map(word));
}

export function separatorOf(chainId, contract) {
  return K(K(ascii(DOMAIN)), K(ascii("sapo")), K(ascii("1")), word(chainId), word(contract));
}

export function digestOf(type, fields, chainId, contract) {
  return K(Uint8Array.of(0x19, 1), separatorOf(chainId, contract), structHash(type, fields));
}

// The account whose signature of a digest this is, or null.
export function signerOf(digest, signature) {
  if (!isBytes(signature, 65)) return null;
  const [r, s, v] = [bigOf(signature.subarray(0, 32)), bigOf(signature.subarray(32, 64)), signature[64]];
  if (v !== 27 && v !== 28) return null;
  if (r < 1n || r >= ORDER || s < 1n || s > ORDER >> 1n) return null;
  try {
    const compact = secp256k1.Signature.fromBytes(signature.subarray(0, 64), "compact");
    const point = compact.addRecoveryBit(v - 27).recoverPublicKey(digest);
    return K(point.toBytes(false).subarray(1)).subarray(12);
  } catch (error) {
    if (error instanceof Error) return null; // r is the coordinate of no point, or the key is none
    throw error;
  }
}

export function bindingDigest(certificate, manifest) {
  const fields = [certificate.node, manifest.swarmId, certificate.notBefore, certificate.notAfter];
  const registry = manifest.registry.length === 0 ? new Uint8Array(20) : manifest.registry;
  return digestOf("NodeBinding", fields, manifest.chainId, registry);
}

const SIGNERS = new Map();

export function isBound(certificate, manifest) {
  const digest = bindingDigest(certificate, manifest);
  const question = hex(digest) + hex(certificate.accountSignature);
  if (!SIGNERS.has(question)) SIGNERS.set(question, signerOf(digest, certificate.accountSignature));
  const signer = SIGNERS.get(question);
  return signer !== null && hex(signer) === hex(certificate.account);
}
