// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Swarm} from "./Swarm.sol";

/// @notice The terms that are fixed at deployment, and the invalid ones: nothing can be changed later.
contract DeploymentTest is Swarm {
    uint256[COUNT] private none;

    function test_the_contracts_have_the_terms_of_the_deployment() external view {
        same(ledger.quorum(), QUORUM, "quorum");
        same(ledger.genesisSeconds(), GENESIS, "genesis");
        same(ledger.epochSeconds(), EPOCH, "epoch");
        same(ledger.challengeSeconds(), WINDOW, "window");
        same(ledger.epochBudget(), BUDGET, "budget");
        same(ledger.auditorBond(), BOND, "bond");
        same(ledger.MAX_AUDITORS(), 64, "most auditors");
        check(keccak256(abi.encode(ledger.auditors())) == keccak256(abi.encode(auditors)), "auditors");
        for (uint256 i = 0; i < COUNT; ++i) {
            check(ledger.isAuditor(auditors[i]) && !ledger.isAuditor(accounts[i]), "who is an auditor");
        }
        check(distributor.ledger() == address(ledger) && address(verifier.ledger()) == address(ledger), "ledger");
        check(address(verifier.distributor()) == address(distributor), "distributor");
        check(address(verifier.vault()) == address(vault) && vault.slasher() == address(verifier), "vault");
        IERC20[3] memory tokens = [distributor.token(), verifier.token(), vault.token()];
        for (uint256 i = 0; i < 3; ++i) {
            check(address(tokens[i]) == address(token), "token");
        }
        same(distributor.tokensPerPoint(), RATE, "rate");
        same(distributor.pointsCap(), CAP, "the distributor's cap");
        same(verifier.pointsCap(), CAP, "the verifier's cap");
        same(verifier.questionBond(), CAP * RATE, "a question's bond");
        same(verifier.answerSeconds(), WINDOW, "the time for an answer");
        same(verifier.recallSeconds(), WINDOW + 6 * EPOCH, "how long final epochs can be asked about");
        same(distributor.PAYOUT_DELAY(), 604_800, "a week");
        check(vault.BURNED() == BURNED, "where burned tokens go");
    }

    function test_the_state_after_deployment() external {
        (EpochRoot memory root, uint64 postedAt,) = ledger.live();
        check(postedAt == 0 && root.baseRoot == 0, "live");
        same(ledger.nextEpoch(), 0, "next epoch");
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        check(history == bytes32(uint256(1)) && history == ledger.EMPTY_HISTORY() && finalBlock == 0, "history");
        check(distributor.cumulativeRoot() == 0, "root");
        check(distributor.grantedPoints() == 0 && distributor.paidPoints() == 0, "points");
        same(distributor.grantedEpochs(), 0, "epochs");
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        ledger.liveRoot();
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        ledger.finalise();
    }

    /// The documentation states both types and the domain, from which wallets and other clients build them.
    function test_signatures_are_over_the_documented_types() external view {
        EpochRoot memory root = EpochRoot(1, bytes32(uint256(2)), bytes32(uint256(3)), bytes32(uint256(4)), 5, bytes32(uint256(6)));
        string memory rootType = "EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,uint256 total,bytes32 archiveDigest)";
        bytes32 hashed = keccak256(
            abi.encode(keccak256(bytes(rootType)), root.epoch, root.baseRoot, root.contributionRoot, root.cumulativeRoot, root.total, root.archiveDigest)
        );
        check(ledger.epochRootDigest(root) == _typed(hashed), "the statement");
        bytes32 approvalType = keccak256(abi.encodePacked("EpochApproval(uint32 turn,EpochRoot root)", rootType));
        check(ledger.approvalDigest(root, 7) == _typed(keccak256(abi.encode(approvalType, uint32(7), hashed))), "the approval");
        check(ledger.EPOCH_ROOT_TYPEHASH() == keccak256(bytes(rootType)), "type of the statement");
        check(ledger.EPOCH_APPROVAL_TYPEHASH() == approvalType, "type of the approval");
    }

    function test_changes_are_signed_over_the_documented_types() external view {
        bytes32 kind = keccak256(
            "Succession(uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering)"
        );
        EpochLedger.Succession memory change = EpochLedger.Succession(1, 20, bytes32(uint256(3)), PROVER, BURNED);
        bytes32 hashed = keccak256(abi.encode(kind, uint256(1), uint256(20), bytes32(uint256(3)), PROVER, BURNED));
        check(ledger.successionDigest(change) == _typed(hashed), "an announcement");
        check(ledger.SUCCESSION_TYPEHASH() == kind, "type of an announcement");
        kind = keccak256("Withdrawal(uint64 number)");
        check(ledger.withdrawalDigest(5) == _typed(keccak256(abi.encode(kind, uint256(5)))), "a withdrawal");
        check(ledger.WITHDRAWAL_TYPEHASH() == kind, "type of a withdrawal");
    }

    function test_auditors_must_ascend_and_be_at_most_sixty_four() external {
        EpochLedger.Terms memory terms = _terms();
        terms.auditors = new address[](65);
        for (uint160 i = 0; i < 65; ++i) {
            terms.auditors[i] = address(i + 1);
        }
        _isRefused(terms, EpochLedger.BadAuditors.selector);
        terms = _terms();
        terms.auditors[1] = terms.auditors[0];
        _isRefused(terms, EpochLedger.BadAuditors.selector);
        terms = _terms();
        (terms.auditors[2], terms.auditors[3]) = (terms.auditors[3], terms.auditors[2]);
        _isRefused(terms, EpochLedger.BadAuditors.selector);
        terms = _terms();
        terms.auditors[0] = address(0);
        _isRefused(terms, EpochLedger.BadAuditors.selector);
        terms.auditors[0] = address(1);
        check(new EpochLedger(terms).isAuditor(address(1)), "the lowest address");
    }

    function test_quorum_clock_and_budget_have_bounds() external {
        EpochLedger.Terms memory terms = _terms();
        terms.quorum = 0;
        _isRefused(terms, EpochLedger.BadQuorum.selector);
        terms.quorum = COUNT + 1;
        _isRefused(terms, EpochLedger.BadQuorum.selector);
        terms.quorum = COUNT;
        same(new EpochLedger(terms).quorum(), COUNT, "all of them");
        terms.quorum = 1;
        same(new EpochLedger(terms).quorum(), 1, "one of them");
        terms.challengeSeconds = 0;
        _isRefused(terms, EpochLedger.BadClock.selector);
        terms.challengeSeconds = EPOCH;
        _isRefused(terms, EpochLedger.BadClock.selector);
        (terms.challengeSeconds, terms.genesisSeconds) = (EPOCH - 1, 0);
        same(new EpochLedger(terms).challengeSeconds(), EPOCH - 1, "a second below an epoch");
        terms.challengeSeconds = 1;
        same(new EpochLedger(terms).challengeSeconds(), 1, "a second");
        terms.epochBudget = 1 << 32;
        _isRefused(terms, EpochLedger.BadBudget.selector);
        terms.epochBudget = (1 << 32) - 1;
        same(new EpochLedger(terms).epochBudget(), (1 << 32) - 1, "32 bits");
    }

    /// Of several invalid terms the first one is reported, so that they can be corrected one after the other.
    function test_the_first_of_several_invalid_terms_is_reported() external {
        EpochLedger.Terms memory terms = _terms();
        (terms.auditors, terms.quorum) = (new address[](65), 0);
        (terms.challengeSeconds, terms.epochBudget) = (0, 1 << 32);
        _isRefused(terms, EpochLedger.BadAuditors.selector);
        terms.auditors = auditors;
        _isRefused(terms, EpochLedger.BadQuorum.selector);
        terms.quorum = QUORUM;
        _isRefused(terms, EpochLedger.BadClock.selector);
        terms.challengeSeconds = WINDOW;
        _isRefused(terms, EpochLedger.BadBudget.selector);
    }

    /// Each of the sixty-four bits represents one auditor.
    function test_sixty_four_auditors_have_different_places() external {
        uint256[] memory sorted = _sortedKeys(64);
        EpochLedger.Terms memory terms = _terms();
        terms.auditors = new address[](64);
        for (uint256 i = 0; i < 64; ++i) {
            terms.auditors[i] = vm.addr(sorted[i]);
        }
        (terms.quorum, terms.auditorBond) = (2, 0);
        EpochLedger many = new EpochLedger(terms);
        EpochRoot memory root = EpochRoot(0, 0, 0, 0, 0, keccak256("nothing"));
        bytes[] memory signed = new bytes[](3);
        uint256[3] memory who = [uint256(0), 33, 63];
        for (uint256 i = 0; i < 3; ++i) {
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(sorted[who[i]], many.approvalDigest(root, 1));
            signed[i] = abi.encodePacked(r, s, v);
        }
        vm.warp(afterEpoch(0));
        many.post(root, 1, signed);
        (,, uint64 signers) = many.live();
        same(signers, 1 | (1 << 33) | (1 << 63), "signers");
        address slasher = address(many.verifier());
        vm.prank(slasher);
        many.strike(terms.auditors[33], 0);
        (,, signers) = many.live();
        same(signers, 1 | (1 << 63), "without the one that was struck");
        vm.prank(slasher);
        address[] memory found = many.reject();
        check(found.length == 2 && found[0] == terms.auditors[0] && found[1] == terms.auditors[63], "who signed");
    }

    function test_the_test_token_is_minted_to_one_holder() external {
        SapoToken coin = new SapoToken(PROVER, 1e20);
        same(coin.totalSupply(), 1e20, "supply");
        same(coin.balanceOf(PROVER), 1e20, "its holder's");
        check(keccak256(bytes(coin.name())) == keccak256("Sapo test token"), "name");
        check(keccak256(bytes(coin.symbol())) == keccak256("SAPO"), "symbol");
        same(coin.decimals(), 18, "decimals");
    }

    function _sortedKeys(uint256 count) private pure returns (uint256[] memory sorted) {
        sorted = new uint256[](count);
        address[] memory owners = new address[](count);
        for (uint256 i = 0; i < count; ++i) {
            address owner = vm.addr(1_000 + i);
            uint256 place = i;
            for (; place > 0 && owners[place - 1] > owner; --place) {
                (owners[place], sorted[place]) = (owners[place - 1], sorted[place - 1]);
            }
            (owners[place], sorted[place]) = (owner, 1_000 + i);
        }
    }

    function _typed(bytes32 hashed) private view returns (bytes32) {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("sapo"),
                keccak256("1"),
                block.chainid,
                address(ledger)
            )
        );
        return keccak256(abi.encodePacked(hex"1901", domain, hashed));
    }

    function _terms() private view returns (EpochLedger.Terms memory) {
        address[] memory copied = auditors;
        return EpochLedger.Terms(copied, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, BOND, token, RATE);
    }

    function _isRefused(EpochLedger.Terms memory terms, bytes4 reason) private {
        try new EpochLedger(terms) {
            revert False("a deployment that must be refused");
        } catch (bytes memory reason_) {
            check(bytes4(reason_) == reason, "refused for another reason");
        }
    }
}
