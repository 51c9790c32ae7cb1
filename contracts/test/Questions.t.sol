// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot, FinalEpoch} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {SapoToken} from "../src/SapoToken.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Asks about an account and answers in the same call, so that its bond is returned at once.
contract SelfAnswerer {
    FraudVerifier private immutable verifier;

    constructor(FraudVerifier verifier_, SapoToken token) {
        verifier = verifier_;
        token.approve(address(verifier_), type(uint256).max);
    }

    function askFinal(FinalEpoch[] calldata newestFirst, address account, Place[3] calldata places, uint256 times) external {
        for (uint256 i = 0; i < times; ++i) {
            verifier.askFinal(newestFirst, account);
            verifier.answerFinal(newestFirst[newestFirst.length - 1], account, places[0], places[1], places[2]);
        }
    }

    function ask(address account, Place[3] calldata places, uint256 times) external {
        for (uint256 i = 0; i < times; ++i) {
            verifier.ask(account);
            verifier.answer(account, places[0], places[1], places[2]);
        }
    }
}

/// @notice A token that calls receivers that want it, and lets them refuse a transfer.
contract TellingToken is ERC20 {
    mapping(address receiver => bool) private _wishes;

    constructor() ERC20("Telling", "T") {
        _mint(msg.sender, 1e24);
    }

    function tellMe() external {
        _wishes[msg.sender] = true;
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (_wishes[to]) {
            (bool taken,) = to.call(abi.encodeCall(IReceiver.onReceived, ()));
            require(taken, "refused");
        }
    }
}

interface IReceiver {
    function onReceived() external;
}

/// @notice Asks a question and then refuses tokens until it is told to accept them.
contract RefusingAsker is IReceiver {
    enum Manner {
        Takes,
        Reverts,
        BurnsAllGas
    }

    Manner public manner;

    constructor(TellingToken token) {
        token.tellMe();
    }

    function askFinal(FraudVerifier verifier, FinalEpoch[] calldata newestFirst, address account) external {
        verifier.token().approve(address(verifier), type(uint256).max);
        verifier.askFinal(newestFirst, account);
    }

    function ask(FraudVerifier verifier, address account) external {
        verifier.token().approve(address(verifier), type(uint256).max);
        verifier.ask(account);
    }

    function behave(Manner manner_) external {
        manner = manner_;
    }

    function onReceived() external view {
        if (manner == Manner.Reverts) revert("no");
        while (manner == Manner.BurnsAllGas) {}
    }
}

/// @notice No question makes other questions unreadable, endless or unusable.
contract QuestionsTest is Swarm {
    uint256[COUNT] private none;
    uint256[COUNT] private had = [uint256(12), 6, 2, 0];

    function setUp() external {
        token.approve(address(verifier), type(uint256).max);
    }

    // The list that every node reads

    function test_questions_answered_in_one_call_do_not_lengthen_the_list_of_a_final_epoch() external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        bytes32 name = keccak256(abi.encode(last[0]));
        SelfAnswerer attacker = new SelfAnswerer(verifier, token);
        token.transfer(address(attacker), CAP * RATE);
        Place[3] memory places = [_nobody(), placeOf(had, 0), placeOf(had, 0)];
        attacker.askFinal(last, accounts[0], places, 1);
        uint256 before = _gasOfReading(name);
        attacker.askFinal(last, accounts[0], places, 100);
        same(_gasOfReading(name), before, "gas of reading");
        same(token.balanceOf(address(attacker)), CAP * RATE, "it has its bond back, many times");
    }

    function test_questions_answered_in_one_call_do_not_lengthen_the_list_of_a_posting() external {
        EpochRoot memory root = statement(0, had, none);
        _post(ledger, root);
        bytes32 posting = verifier.postingOf(ledger.epochRootDigest(root), uint64(block.timestamp));
        vm.warp(block.timestamp + 1);
        SelfAnswerer attacker = new SelfAnswerer(verifier, token);
        token.transfer(address(attacker), CAP * RATE);
        Place[3] memory places = [_nobody(), placeOf(had, 0), placeOf(had, 0)];
        attacker.ask(accounts[0], places, 1);
        uint256 before = _gasOfReading(posting);
        attacker.ask(accounts[0], places, 100);
        same(_gasOfReading(posting), before, "gas of reading");
    }

    /// A question that ends is removed from the list, in any order, and can be asked again.
    function testFuzz_the_list_holds_exactly_the_open_questions(uint256 seed) external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        bytes32 name = keccak256(abi.encode(last[0]));
        bool[COUNT] memory isOpen;
        for (uint256 step = 0; step < 12; ++step) {
            uint256 i = uint256(keccak256(abi.encode(seed, step))) % COUNT;
            if (isOpen[i]) {
                verifier.answerFinal(last[0], accounts[i], _nobody(), placeOf(had, i), placeOf(had, i));
            } else {
                verifier.askFinal(last, accounts[i]);
            }
            isOpen[i] = !isOpen[i];
            _listed(name, isOpen);
        }
    }

    // The end of a question about a final epoch

    /// An unanswered question cannot recall epochs that became final long after its deadline.
    function test_a_lapsed_question_cannot_recall() external {
        FinalEpoch[] memory epochs = new FinalEpoch[](21);
        epochs[20] = _settle(ledger, statement(0, had, none));
        verifier.askFinal(_one(epochs[20]), accounts[0]);
        for (uint64 i = 1; i <= 20; ++i) {
            epochs[20 - i] = _settle(ledger, _moved(i, had));
        }
        vm.expectPartialRevert(FraudVerifier.TooLateToRecall.selector);
        verifier.recall(epochs, accounts[0]);
        check(distributor.cumulativeRoot() == treeOf(had), "still final");
    }

    /// The time to recall is as long as the time to answer, and ends within nine epochs of the posting.
    function testFuzz_a_recall_must_follow_within_a_window_of_the_deadline(uint256 asked, uint256 late) external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        uint256 end = last[0].postedAt + verifier.recallSeconds();
        vm.warp(bound(asked, block.timestamp, end - 1));
        verifier.askFinal(last, accounts[0]);
        uint256 deadline = block.timestamp + WINDOW;
        check(deadline + WINDOW < last[0].postedAt + 9 * EPOCH, "nine epochs");
        bytes32 name = keccak256(abi.encode(last[0]));
        uint256[2] memory tooLate = [deadline + WINDOW, deadline + WINDOW + bound(late, 1, 1 << 30)];
        for (uint256 i = 0; i < 2; ++i) {
            vm.warp(tooLate[i]);
            vm.expectPartialRevert(FraudVerifier.TooLateToRecall.selector);
            verifier.recall(last, accounts[0]);
        }
        vm.warp(deadline + WINDOW - 1);
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.refund(name, accounts[0]);
        verifier.recall(last, accounts[0]);
        check(distributor.cumulativeRoot() == 0, "recalled");
    }

    /// The bond of a lapsed question is returned to its asker, and the same question can be asked again.
    function test_a_lapsed_question_is_refunded_and_asked_again() external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        bytes32 name = keccak256(abi.encode(last[0]));
        uint256 tokens = token.balanceOf(address(this));
        verifier.askFinal(last, accounts[0]);
        vm.warp(block.timestamp + 2 * WINDOW);
        vm.expectPartialRevert(FraudVerifier.AlreadyAsked.selector);
        verifier.askFinal(last, accounts[0]);
        vm.prank(PROVER);
        verifier.refund(name, accounts[0]);
        same(token.balanceOf(address(this)), tokens, "to who asked, whoever sends it");
        verifier.askFinal(last, accounts[0]);
        _listed(name, [true, false, false, false]);
        vm.warp(block.timestamp + WINDOW);
        verifier.recall(last, accounts[0]);
        check(distributor.cumulativeRoot() == 0, "recalled");
    }

    /// A late answer counts until the bond is returned.
    function test_a_lapsed_question_can_still_be_answered() external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        verifier.askFinal(last, accounts[0]);
        vm.warp(block.timestamp + 2 * WINDOW);
        vm.prank(PROVER);
        verifier.answerFinal(last[0], accounts[0], _nobody(), placeOf(had, 0), placeOf(had, 0));
        same(token.balanceOf(PROVER), CAP * RATE, "earned");
        _listed(keccak256(abi.encode(last[0])), [false, false, false, false]);
    }

    // An asker that refuses its bond; each call is a transaction, because gas depends on the slots' earlier values

    /// forge-config: default.isolate = true
    function test_an_asker_that_refuses_its_bond_does_not_prevent_a_recall() external {
        (TellingToken telling, EpochLedger own, FraudVerifier judge) = _elsewhere();
        for (uint256 i = 1; i <= 2; ++i) {
            RefusingAsker asker = new RefusingAsker(telling);
            telling.transfer(address(asker), 2 * CAP * RATE);
            FinalEpoch[] memory hidden = _one(_settle(own, _hidden(uint64(i))));
            asker.askFinal(judge, hidden, accounts[0]);
            asker.askFinal(judge, hidden, accounts[1]);
            asker.behave(RefusingAsker.Manner(i));
            vm.warp(block.timestamp + WINDOW);
            judge.recall{gas: 500_000}(hidden, accounts[0]);
            check(own.distributor().cumulativeRoot() == 0, "recalled");
            _isRefundedLater(judge, asker, keccak256(abi.encode(hidden[0])));
        }
    }

    /// forge-config: default.isolate = true
    function test_an_asker_that_refuses_its_bond_does_not_prevent_a_rejection() external {
        (TellingToken telling, EpochLedger own, FraudVerifier judge) = _elsewhere();
        for (uint256 i = 1; i <= 2; ++i) {
            RefusingAsker asker = new RefusingAsker(telling);
            telling.transfer(address(asker), 2 * CAP * RATE);
            EpochRoot memory root = _hidden(uint64(i));
            _post(own, root);
            bytes32 posting = judge.postingOf(own.epochRootDigest(root), uint64(block.timestamp));
            vm.warp(block.timestamp + 1);
            asker.ask(judge, accounts[0]);
            asker.ask(judge, accounts[1]);
            asker.behave(RefusingAsker.Manner(i));
            vm.warp(block.timestamp + WINDOW);
            judge.proveHidden{gas: 500_000}(accounts[0]);
            (, uint64 postedAt,) = own.live();
            same(postedAt, 0, "rejected");
            _isRefundedLater(judge, asker, posting);
        }
    }

    /// Clients send as much gas as an estimate says: for no amount does a recall succeed and leave the bond unpaid.
    /// forge-config: default.isolate = true
    function test_a_recall_that_succeeds_has_returned_the_bond_with_any_gas() external {
        FinalEpoch[] memory last = _one(_settle(ledger, statement(0, had, none)));
        verifier.askFinal(last, accounts[0]);
        uint256 tokens = token.balanceOf(address(this));
        vm.warp(block.timestamp + WINDOW);
        bool done = false;
        for (uint256 gas_ = 30_000; !done; gas_ += 250) {
            (done,) = address(verifier).call{gas: gas_}(abi.encodeCall(verifier.recall, (last, accounts[0])));
        }
        same(token.balanceOf(address(this)) - tokens, CAP * RATE, "the bond is returned");
    }

    function _isRefundedLater(FraudVerifier judge, RefusingAsker asker, bytes32 name) private {
        TellingToken telling = TellingToken(address(judge.token()));
        (address[] memory open,) = judge.openQuestions(name);
        same(open.length, 2, "both bonds are kept");
        asker.behave(RefusingAsker.Manner.Takes);
        judge.refund(name, accounts[0]);
        judge.refund(name, accounts[1]);
        same(telling.balanceOf(address(asker)), 2 * CAP * RATE, "both bonds are back");
        same(telling.balanceOf(address(judge)), 0, "nothing is left");
        (open,) = judge.openQuestions(name);
        same(open.length, 0, "nothing is open");
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        judge.refund(name, accounts[0]);
    }

    function _listed(bytes32 name, bool[COUNT] memory isOpen) private view {
        (address[] memory about, FraudVerifier.Question[] memory questions) = verifier.openQuestions(name);
        uint256 count = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (isOpen[i]) ++count;
            uint256 times = 0;
            for (uint256 j = 0; j < about.length; ++j) {
                if (about[j] == accounts[i]) ++times;
            }
            same(times, isOpen[i] ? 1 : 0, "once while it is open");
            check((verifier.questionOf(name, accounts[i]).asker == address(this)) == isOpen[i], "asker");
        }
        same(about.length, count, "accounts");
        same(questions.length, count, "questions");
        for (uint256 j = 0; j < count; ++j) {
            check(questions[j].asker == address(this) && questions[j].deadline != 0, "its question");
        }
    }

    function _gasOfReading(bytes32 name) private view returns (uint256 gas_) {
        gas_ = gasleft();
        verifier.openQuestions(name);
        gas_ -= gasleft();
    }

    /// A ledger whose token calls receivers, and whose auditors need no bond.
    function _elsewhere() private returns (TellingToken telling, EpochLedger own, FraudVerifier judge) {
        telling = new TellingToken();
        own = new EpochLedger(EpochLedger.Terms(auditors, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, 0, telling, RATE));
        judge = own.verifier();
    }

    /// An epoch without points whose leaves are hidden.
    function _hidden(uint64 epoch) private view returns (EpochRoot memory) {
        return statement(epoch, none, none);
    }

    function _moved(uint64 epoch, uint256[COUNT] memory cumulative) private view returns (EpochRoot memory root) {
        root = statement(epoch, none, none);
        root.cumulativeRoot = treeOf(cumulative);
    }

    function _post(EpochLedger own, EpochRoot memory root) private {
        if (block.timestamp < afterEpoch(root.epoch)) vm.warp(afterEpoch(root.epoch));
        bytes[] memory signed = new bytes[](QUORUM);
        for (uint256 i = 0; i < QUORUM; ++i) {
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(keys[i], own.approvalDigest(root, TURN));
            signed[i] = abi.encodePacked(r, s, v);
        }
        own.post(root, TURN, signed);
    }

    function _settle(EpochLedger own, EpochRoot memory root) private returns (FinalEpoch memory) {
        (bytes32 history, uint64 finalBlock) = own.lastFinal();
        _post(own, root);
        uint64 postedAt = uint64(block.timestamp);
        vm.warp(block.timestamp + WINDOW);
        own.finalise();
        return FinalEpoch(root, 7, postedAt, history, finalBlock);
    }

    function _one(FinalEpoch memory epoch) private pure returns (FinalEpoch[] memory list) {
        list = new FinalEpoch[](1);
        list[0] = epoch;
    }

    function _nobody() private pure returns (Place memory) {
        return Place(address(0), 0, new bytes32[](0));
    }
}
