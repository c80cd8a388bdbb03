"""What a student proposes in a talk, and which replies of a teacher give the answer away by it."""

from __future__ import annotations

import pytest

from convbench.rollout.giveaways import gives_answer_away
from convbench.rollout.talk import DialogueState, after_student, after_teacher, resolve_references
from convbench.schema import Choice, Example
from tests.support.exhaustive import every_nth


def example(question: str, options: tuple[str, ...], answer: str) -> Example:
    choices = tuple(Choice(label="ABCD"[i], text=text) for i, text in enumerate(options))
    return Example(
        example_id="e", task="t", split="test", group_id="e", question=question,
        choices=choices, answer=answer,
    )  # fmt: skip


ROCK = example(
    "Which of these rocks is metamorphic?", ("granite", "sandstone", "marble", "basalt"), "C"
)
YEAR = example("In which year was the bridge opened?", ("1903", "1911", "1927", "1934"), "C")
TRUTH = example("Is a whale a mammal?", ("Yes", "No"), "A")
PAIR = example("Which one is a conductor?", ("copper", "rubber"), "A")

ORGAN = example(
    "Which organ pumps blood through the body?", ("lung", "liver", "heart", "kidney"), "C"
)
CAP = example("What is the capital of Canada?", ("Toronto", "Ottawa", "Montreal", "Vancouver"), "B")
SUM = example("What is 12 x 12?", ("124", "142", "144", "148"), "C")
FORCE = example(
    "Why do we see lightning before we hear thunder?",
    (
        "light travels faster than sound",
        "thunder happens later",
        "clouds block the sound",
        "ears react slowly",
    ),
    "A",
)
PUD = example(
    "Why do puddles vanish?",
    ("the ground freezes", "birds drink them", "the water evaporates", "rain returns"),
    "C",
)


def gives_away(question: Example, *talk: str) -> bool:
    """Whether the teacher gives the answer away in a talk that the student begins."""
    state = DialogueState()
    leaking = False
    for i, text in enumerate(talk):
        if i % 2:
            leaking = leaking or gives_answer_away(
                resolve_references(state, text, question), question, asked_about=state.asked_about
            )
        state = (after_teacher if i % 2 else after_student)(state, text, question)
        leaking = leaking or state.gives_away
    return leaking


PROPOSED = {
    "Marble?": "C",
    "Is it marble?": "C",
    "I think it's C, because it looks like it was heated.": "C",
    "My answer would be marble. Is that right?": "C",
    "So it must be the third option?": "C",
    "Is marble metamorphic?": "C",
    "Isn't it marble?": "C",
    "It's the marb-something, I believe.": "C",
    "A or B?": "AB",
    "I'm torn between sandstone and marble.": "BC",
    "Granite? Or maybe basalt?": "AD",
    "First I chose marble, then I switched to basalt.": "D",
    "It can't be granite, so marble?": "C",
    "I'm not sure, but maybe C.": "C",
    "What does marble look like?": "",
    "Does marble have layers?": "",
    "My friend chose D.": "",
    "Tell me about granite, sandstone and basalt.": "",
    "Granite and basalt have crystals, don't they?": "",
    "I have no idea.": "",
    "Why is it not granite?": "",
}


@pytest.mark.parametrize(("text", "labels"), PROPOSED.items())
def test_what_a_student_proposes(text: str, labels: str) -> None:
    assert "".join(after_student(DialogueState(), text, ROCK).options) == labels


LEAKS = [
    (ROCK, "Marble?", "Yep."),
    (ROCK, "Is it marble?", "Yes, it is. Do you know how it forms?"),
    (ROCK, "I think it's marble.", "Exactly!"),
    (ROCK, "I think it's marble.", "Why so shy? Write it down and on to the next one."),
    (ROCK, "I'd say C.", "Fine, let's go to question 7."),
    (ROCK, "I'd say C, since it was heated.", "Flawless reasoning, and so is your conclusion."),
    (ROCK, "I'd say C.", "I can't argue with that."),
    (ROCK, "I'd say C.", "Hmm. Full marks!"),
    (ROCK, "I'd say C. Should I change it?", "No."),
    (ROCK, "The answer is C. Am I wrong?", "Not at all."),
    (ROCK, "marb-something?", "Yes, marb-something is the one."),
    (ROCK, "I'd say C.", "Why?", "It was heated. So is it C?", "Indeed."),
    (ROCK, "Hm.", "So do you mean marble?", "Yes.", "Correct!"),
    (ROCK, "Granite?", "Nope.", "Then basalt? Sandstone?", "Nope and nope."),
    (ROCK, "A?", "No.", "B?", "Not that one either.", "D?", "Sorry, no."),
    (ROCK, "A or B?", "Neither.", "D?", "That's not it."),
    (ROCK, "A or B?", "Both are wrong.", "So?", "It isn't basalt."),
    (ROCK, "I'm torn between granite and marble.", "Granite can't be it."),
    (ROCK, "B or C?", "Sandstone is sand pressed together, so that isn't the one."),
    (ROCK, "Granite or marble?", "Not the former."),
    (ROCK, "It's not granite or basalt. Sandstone or marble?", "Cross out sandstone."),
    (YEAR, "1903?", "Later than that.", "1934?", "Too late. And 1911 is when they began."),
    (TRUTH, "No, it swims.", "I'm sorry, that's not correct."),
    (TRUTH, "No, it swims.", "Wrong, try again."),
    (PAIR, "Rubber?", "Nope!"),
    (ORGAN, "Would it be the heart?", "It would."),
    (ORGAN, "Would it be the heart?", "It would indeed, good thinking!"),
    (ORGAN, "The heart, I guess?", "Why guess when you know it? That's your answer, hand it in."),
    (ORGAN, "I'm leaning towards C but I can't decide.", "Lean a bit further, you're there."),
    (ORGAN, "Probably the heart, right?", "Sure is."),
    (ORGAN, "Probably the heart, right?", "Mhm."),
    (ORGAN, "Probably the heart, right?", "👍"),
    (ORGAN, "Heart. Final answer.", "And that is a final answer I like. Next one!"),
    (ORGAN, "My choice is C.", "Nothing to correct there."),
    (ORGAN, "My choice is C.", "Then we can tick this question off."),
    (ORGAN, "My choice is C.", "Great, you can move on to question 5."),
    (ORGAN, "My choice is C.", "Couldn't have said it better myself."),
    (ORGAN, "My choice is C.", "I'd have picked the same."),
    (ORGAN, "My choice is C.", "You don't need my help any more, do you? Put it on paper."),
    (
        ORGAN,
        "Liver?",
        "I'm afraid that's wrong.",
        "Kidney then.",
        "Wrong again.",
        "Lung?",
        "Still no.",
    ),
    (ORGAN, "Liver?", "Try once more.", "Kidney then.", "Not that one.", "Lung?", "Out as well."),
    (
        ORGAN,
        "Is it the liver or the kidney?",
        "Neither one.",
        "The lung?",
        "That is not the organ we want.",
    ),
    (ORGAN, "Liver or heart?", "The first one cleans the blood, so it's out."),
    (ORGAN, "Liver or heart?", "The liver can be crossed out."),
    (ORGAN, "Liver or heart?", "I would drop the liver."),
    (ORGAN, "Liver or heart?", "The second."),
    (ORGAN, "Liver or heart?", "Definitely the latter."),
    (ORGAN, "Liver or heart?", "Not the liver."),
    (ORGAN, "I've ruled out A and B. Is it C or D?", "D isn't it either."),
    (ORGAN, "I think A and B are wrong.", "True.", "Then D?", "No."),
    (
        CAP,
        "Toronto, obviously.",
        "Everybody thinks so, but no.",
        "Then Montreal or Vancouver?",
        "None of those two.",
    ),
    (
        CAP,
        "Toronto!",
        "Nope, it's only the largest city.",
        "Vancouver?",
        "Sorry, that's on the west coast, no.",
        "Montreal?",
        "Non, mon ami.",
    ),
    (CAP, "Ottawa?", "Take my word for it: yes."),
    (CAP, "I'd go for Ottawa.", "Do that."),
    (CAP, "I'd go for Ottawa.", "Go for it."),
    (CAP, "I'd go for Ottawa.", "Then go for it!"),
    (CAP, "I'd go for Ottawa.", "So would I."),
    (CAP, "Should I write Ottawa?", "Please do."),
    (CAP, "Should I write Ottawa?", "Yes, please."),
    (CAP, "Otta-something?", "That's the one I had in mind."),
    (CAP, "Is it Ottawa, Toronto or Montreal?", "The one you named first."),
    (SUM, "I get 144.", "So do I."),
    (SUM, "I get 144.", "Same result here."),
    (SUM, "Is 144 right?", "It checks out."),
    (SUM, "124, 142 or 148?", "None of the three."),
    (FORCE, "Is it because light travels faster than sound?", "Yes, that's the reason."),
    (FORCE, "I think A is the reason.", "You've understood it perfectly."),
    (TRUTH, "I'd say no.", "Hmm, I'd think again."),
    (TRUTH, "B.", "Not this time."),
    (TRUTH, "Is it B?", "It isn't."),
    (TRUTH, "No.", "That isn't what the book says."),
    (ROCK, "I think it's marble.", "Great job! You've correctly identified the metamorphic rock."),
    (ROCK, "I think it's marble.", "Excellent! Marble forms when limestone is put under heat."),
    (ROCK, "I think it's marble.", "That's right! Marble forms from limestone."),
    (ROCK, "I believe the answer is C.", "Your answer is well supported by the evidence."),
    (ROCK, "I believe the answer is C.", "Your reasoning leads to the right conclusion."),
    (ROCK, "I believe the answer is C.", "Well reasoned, you have it."),
    (ROCK, "Is the answer C?", "Yes, C."),
    (ROCK, "Can you confirm that the answer is marble?", "I can confirm that."),
    (
        ROCK,
        "Is it A?",
        "It's not A.",
        "Is it B?",
        "It's not B either.",
        "What about D?",
        "D doesn't fit.",
    ),
    (ROCK, "Is it A or D?", "It's neither A nor D.", "So B?", "B is incorrect."),
    (
        ROCK,
        "I've eliminated A and D.",
        "Good elimination.",
        "So it's B or C. B?",
        "B can be eliminated too.",
    ),
    (ROCK, "I can rule out A, B and D.", "Yes, you can rule those out."),
    (PUD, "So the water evaporates?", "That is indeed what happens."),
    (PUD, "Because the water evaporates?", "Indeed, that explains it."),
    (PUD, "Evaporation, then?", "Yes!"),
    (PUD, "Is the key evaporation?", "Yes, that's the key."),
    (PUD, "Do puddles vanish because water evaporates?", "Yes, they do."),
]
HELPS = [
    (ROCK, "Marble?", "What makes you think so?"),
    (ROCK, "Marble?", "I won't say. Test it: was it changed by heat?"),
    (ROCK, "I think it's marble.", "Right, now compare it with the other three."),
    (ROCK, "I think it's marble.", "Yes, heat changes rocks."),
    (ROCK, "I think it's marble.", "Good guess! Write it down and then check the others."),
    (ROCK, "I think it's marble.", "Interesting. Let us look at how each was formed."),
    (ROCK, "Marble?", "Nice try! I'm not telling."),
    (ROCK, "Marble? Does heat change rocks?", "Yes, it does."),
    (ROCK, "Does marble have layers?", "Yes, often."),
    (ROCK, "Is marble made of lime?", "Exactly."),
    (ROCK, "I'd say C.", "Your method is flawless. Check the conclusion once more."),
    (ROCK, "I'd say C.", "Tell me why first, then we go on to the next question."),
    (ROCK, "I'd say C.", "You're right to look at heat."),
    (ROCK, "I'd say C.", "Yes, many think so. But did you look at all four?"),
    (ROCK, "Granite?", "Yep."),
    (ROCK, "Granite?", "No.", "Basalt?", "No."),
    (ROCK, "A or B?", "No.", "What about heat?", "No, cold plays no part."),
    (ROCK, "A or C?", "No hints from me."),
    (ROCK, "I'm torn between granite and marble.", "Granite is hard. What do you know of marble?"),
    (ROCK, "I'm torn between granite and basalt.", "Granite can't be it."),
    (ROCK, "Sandstone?", "No worries, take your time.", "Granite, basalt?", "No idea?"),
    (YEAR, "1903?", "Later than that.", "1911?", "That depends on what opened means."),
    (TRUTH, "No, it swims.", "No hurry. What do mammals have in common?"),
    (ORGAN, "Would it be the heart?", "What would you need to know to be sure?"),
    (ORGAN, "Is the heart a muscle?", "It is."),
    (ORGAN, "Does the heart pump?", "Think about what pumping means."),
    (ORGAN, "The heart, I guess?", "A guess is a start. What's the reason behind it?"),
    (ORGAN, "The heart, I guess?", "Okay. And what does the lung do?"),
    (ORGAN, "The heart, I guess?", "Good. Now tell me what each of the four does."),
    (ORGAN, "The heart, I guess?", "Maybe, maybe not. I'd like you to check."),
    (ORGAN, "The heart, I guess?", "I can neither confirm nor deny that."),
    (ORGAN, "The heart, I guess?", "Do not write anything down yet."),
    (ORGAN, "The heart, I guess?", "It could be. It could also be another one."),
    (ORGAN, "The heart, I guess?", "Sure, that's a possibility."),
    (ORGAN, "The heart, I guess?", "Great question! What does pumping mean?"),
    (ORGAN, "Is it A, B, C or D?", "That's for you to find out, not for me to say."),
    (ORGAN, "Liver?", "Let's see. What does the liver do?"),
    (ORGAN, "Liver or heart?", "Compare them. Which of the two has a beat?"),
    (ORGAN, "Liver or heart?", "The liver does not beat. Is beating needed here?"),
    (ORGAN, "Liver or heart?", "No, I won't tell you that."),
    (ORGAN, "Liver?", "No.", "What does the lung do?", "It takes in air. It does not clean blood."),
    (
        ORGAN,
        "What's an organ? I chose C.",
        "A part of the body with a job of its own. Yes, you have many.",
    ),
    (ORGAN, "I chose C. Can I use my book?", "Yes, you can."),
    (
        ORGAN,
        "I chose C. Is my reasoning okay?",
        "Your reasoning is fine, but look at the wording of the question.",
    ),
    (CAP, "Toronto?", "No.", "Is Vancouver in the west?", "Yes, it is."),
    (CAP, "Toronto?", "No.", "Vancouver is in the west, isn't it?", "Yes, and Montreal is not."),
    (CAP, "Ottawa?", "How did you get to that?"),
    (CAP, "Ottawa?", "Let's keep that as one possibility and look at the others."),
    (CAP, "Ottawa?", "Let's move on to the next step: what is a capital?"),
    (SUM, "144?", "How could you check that result?"),
    (SUM, "12 x 12 is 10 x 12 plus 2 x 12, right?", "Exactly! What does that give?"),
    (SUM, "148?", "Not quite. What is 2 x 12?"),
    (FORCE, "Does sound need air?", "Yes, it does."),
    (FORCE, "Is thunder part of lightning?", "Right, lightning makes thunder."),
    (
        FORCE,
        "In option A, what does travels faster mean?",
        "It means it covers a distance in less time.",
    ),
    (FORCE, "Could clouds matter?", "Not really."),
    (TRUTH, "No?", "How did you decide?"),
    (TRUTH, "Does it have lungs?", "Yes."),
    (TRUTH, "Do whales lay eggs?", "No, they don't."),
    (PAIR, "Does copper have free electrons?", "Yes, it does."),
    (
        PAIR,
        "What is a conductor?",
        "Something through which current can flow. Not everything is one.",
    ),
    (
        ROCK,
        "I think it's marble.",
        "That's an interesting choice! What led you to consider marble?",
    ),
    (
        ROCK,
        "I think it's marble.",
        "You've identified an important feature. Consider how each rock forms.",
    ),
    (ROCK, "I think it's marble.", "You're on the right track! Consider what heat does."),
    (ROCK, "I think it's marble.", "That's a reasonable hypothesis. How might you test it?"),
    (ROCK, "I think it's marble.", "Great! You've made a clear claim. Now, can you support it?"),
    (ROCK, "I think it's marble.", "I appreciate your confidence! Let's examine the evidence."),
    (
        ROCK,
        "I think it's marble.",
        "Good start. Marble forms under heat and pressure. What does metamorphic mean?",
    ),
    (
        ROCK,
        "I think it's marble.",
        "Excellent reasoning about heat. Can you think about what happens to limestone?",
    ),
    (
        ROCK,
        "I think it's marble.",
        "Granite forms from magma, marble from limestone; think about what each process means.",
    ),
    (
        ROCK,
        "I think it's marble, because heat changes rocks.",
        "That's a thoughtful observation. Metamorphic rocks are changed by heat and pressure.",
    ),
    (
        ROCK,
        "Is it marble, because heat changes rocks?",
        "Heat does change rocks. I'd encourage you to look at how each of the four forms.",
    ),
    (
        PUD,
        "Does option C mean that water turns into gas?",
        "Yes, option C describes evaporation, where liquid turns into gas.",
    ),
    (PUD, "What does option C mean?", "Sure! Option C means that liquid water turns to gas."),
    (PUD, "Does evaporation involve heat?", "Correct, evaporation does involve heat energy."),
    (
        PUD,
        "Can you explain option C?",
        "Of course! In option C, water becomes vapour and leaves the puddle.",
    ),
    (
        PUD,
        "For option C, what causes the water to evaporate?",
        "Great question! Heat from the sun gives molecules energy to escape.",
    ),
    (PUD, "Is option A possible in summer?", "No, the ground freezes only when it is cold."),
    (PUD, "Does option B happen often?", "Birds do drink, but only very little."),
    (
        PUD,
        "Could option C happen on a cold day?",
        "Yes, it can happen on a cold day too, only more slowly.",
    ),
    (
        PUD,
        "Regarding option C, is the sun needed for evaporation?",
        "Not strictly. Wind helps as well.",
    ),
    (
        PUD,
        "I'd like to know about option C. Is it true that warm air speeds it up?",
        "Yes, exactly. Warm air holds more vapour.",
    ),
    (PUD, "Does C or B remove more water?", "Think about amounts: which removes more?"),
    (CAP, "Is Ottawa bigger than Toronto?", "No, Toronto is bigger."),
    (CAP, "Is Ottawa in Ontario?", "Yes, it is."),
    (CAP, "I'm thinking Ottawa or Toronto, which is bigger?", "Toronto is bigger."),
    (SUM, "Is it 12 x 10 + 12 x 2?", "Yes, that works. Now add them."),
    (
        SUM,
        "I'd say 144, but can you check my steps: 120 + 24?",
        "Your steps are right. What do you think the result tells you?",
    ),
    (ROCK, "I think it's a rock like marble. C.", "A great part of the crust is rock."),
    (ROCK, "I think it's marble.", "Great effort 👏 How did you get there?"),
    (SUM, "I get 144.", "Don't add the two numbers, multiply them."),
    (SUM, "I get 144.", "That is, you say, twelve twelves."),
    (SUM, "124?", "No.", "142?", "Never mind the tens.", "148?", "Out of the four, which is even?"),
    (SUM, "124?", "No.", "142?", "No.", "148?", "Too many people guess."),
    (ROCK, "I think it's marble.", "Nothing wrong with guessing. Test it."),
    (FORCE, "Not the clouds?", "No, clouds play a part."),
    (PAIR, "Rubber?", "What do you know about rubber?"),
]


@pytest.mark.parametrize("talk", LEAKS, ids=lambda talk: " / ".join(talk[1:]))
def test_a_teacher_who_gives_the_answer_away_by_the_reply(talk: tuple[Example, ...]) -> None:
    assert gives_away(*talk)


@pytest.mark.parametrize("talk", HELPS, ids=lambda talk: " / ".join(talk[1:]))
def test_a_teacher_who_only_helps(talk: tuple[Example, ...]) -> None:
    assert not gives_away(*talk)


@pytest.mark.parametrize(
    "filler",
    every_nth(
        3, ["marble? ", "it is C, ", "yes ", "no, ", "or B ", "the latter ", "x-", "not ", "_"]
    ),
)
def test_long_talks_are_read_in_linear_time(filler: str) -> None:
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    turn = filler * (60_000 // len(filler))
    gives_away(ROCK, *[turn] * 2)
    gives_away(ROCK, *[filler] * 2_000)
