"""Patterns of what a teacher's sentence says to a student's proposal: yes, no, or that it is
settled.

Each pattern is a kind of reply, not a phrase: assents and refusals, elliptic ones too ("so do I",
"it isn't"), what "that" is or is not, praise of an answer, objections that are denied, going on to
what is next. Praise of a method or a question is no reply to a proposal.
"""

from __future__ import annotations

import re

from convbench.rollout.option_names import SIGN

_BETWEEN = rf"[^\w{SIGN[1:-1]}]*+"
"""Characters between words, except the signs of options."""
_LEAD = (
    rf"{_BETWEEN}(?:(?:oh|o|ah|aha|ooh|hm+|mm+|well|haha|hehe|ha|wow|so|and|but|ok|okay|now|look"
    r"|then"
    r"|sorry|i'm (?:sorry|afraid)(?: to say)?(?: that)?|sadly|alas|unfortunately|actually|honestly"
    r"|fine|hey|yay|hic|burp|still|again|also|once more|just|why|my (?:friend|dear)|dear|psst|shh+"
    r"|(?:good|great|nice|fair) (?:question|point|try|attempt|effort|guess|thought)|nice|alright"
    rf"|all right|not to worry|no worries|between us|an?|that's an?)\b{_BETWEEN}){{0,4}}"
)
"""How a reply may begin before its yes or no."""
_BE = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must)"
_HE = r"(?:it|that|this|he|she|they|you|those|these|both|i)"
_ENDS = r"(?= ?(?:[.,;!—–]|-|$))"
_YES = (
    r"(?:yes+|yep|yeah+|yup|yea|ya|aye|uh-?huh|m+-?h+m+|correct|exactly|precisely|absolutely"
    r"|definitely|certainly|indeed|affirmative|totally|undoubtedly|agreed|bingo|quite so|just so"
    r"|very much so|s[íi]|oui|ja|genau|richtig|exacto|sim|nods|thumbs up)"
)
_NO = r"(?:no+|nope|nah|nay|no way|negative|wrong|incorrect|false|nein|non)"

_ADVERB = r"(?: (?:sure|certainly|surely|really|most certainly))?"
_ELLIPTIC_YES = (
    rf"(?:it|he|she|they){_ADVERB} {_BE}(?: (?:indeed|too|so|exactly))?{_ENDS}"
    rf"|(?:that|this|those|you|i|sure|certainly|so it|that it){_ADVERB} {_BE}(?: indeed)?(?=\W*$)"
    rf"|so (?:it )?{_BE} (?:it|that|i|we)\b"
    r"|(?:please )?(?:do|do so|do that|do it|go for it|go ahead|by all means|be my guest)(?=\W*$)"
)
ASSENT = re.compile(
    rf"^{_LEAD}(?:(?P<yes>{_YES}(?= ?(?:[.,;:!*—–]|-|$|{SIGN})| (?:it|that|so|the|this|you|sir|my"
    r"|and"
    r"|indeed|right|correct|he|she|they|on)\b)|'tis\b|(?:no|without(?: a)?|beyond)(?: any)? doubt\b"
    rf"|you bet\b|{_ELLIPTIC_YES}"
    r"|i (?:(?!hardly|never|scarcely)\w+ )?(?:agree|concur|think so|believe so)\b|i'd say so\b"
    r"|so it (?:seems|appears)\b|(?:looks|sounds|seems) (?:like it|right|about right)\b"
    r"|same (?:result|answer|number|value|thing) here\b)"
    r"|(?P<agrees>right|sure(?: thing)?|of course|naturally|true)\b"
    r"|(?P<pleased>good|great|perfect|excellent|wonderful|brilliant|lovely|superb|fantastic"
    r"|splendid|marvell?ous)\b)(?! (?:question|point|idea|way|track|try|guess|thought)\b)"
    rf"|(?P<ends>(?:[,:;—–-]|\bbut|\b(?:is|'s)(?: an?)?) {_YES}\W*$)",
    re.IGNORECASE,
)
"""An assent at a sentence's start, or all of its last words."""
AGREES_FURTHER = re.compile(
    r"\W*(?:(?:it|that|this|you|you're|you've|that's|it's|he|she|well|so|i|indeed|and so)\b"
    r"|(?:(?:yes|indeed|exactly|precisely|right|correct|well|very|done|good|nice(?:ly)?|great"
    r"|perfect|bravo|sir|my|dear|friend|of|course|and)\b\W*){0,4}$)",
    re.IGNORECASE,
)
"""What follows an assent to an answer rather than to a fact."""
TURNS_BACK = re.compile(r"\b(?:but|however|although|though|yet)\b", re.IGNORECASE)
"""Words that take back part of what is said before them."""
CONCEDES = re.compile(
    r"\b(?:sure|true|granted|admittedly|fair|yes|right|indeed|some|many|close|tempting|(?:do|does"
    r"|did)"
    r" \w+)\b[^.?!]{0,60}?\b(?:but|yet|however|though)\b",
    re.IGNORECASE,
)
"""A point that is granted before an objection."""
REQUESTS = re.compile(
    r"(?:^|[,;:—–] ?|\b(?:and|then|now|please|so|first|but|just|can|could|to) )\W{0,3}(?:look"
    r"|check|find|try"
    r"|think|tell|show|compare|draw|test|read|explain|take|let's|let us|consider|count|describe"
    r"|imagine|remember|see|note|ask|work|use|apply|give|keep|continue|start|begin|make|picture"
    r"|recall|review|verify|convince|list|name|state|return|say)\b"
    r"|\byou (?:should|could|may|might|must|need|have to|want)\b|\b(?:like|want) you\b"
    r"|\byour turn\b"
    r"|\bup to you\b|\bfor yourself\b",
    re.IGNORECASE,
)
"""Something more that a student should do."""
WITHHOLDS = re.compile(
    r"\b(?:won't|can't|cannot|not|never|n't|nor|neither)\b[^.?!]{0,30}?\b(?:say|saying|tell|telling"
    r"|confirm|reveal|judge|help|answer)|\bsecre\w+|\blips\b|\bguess(?:es|ing)?\b|\bmaybe\b"
    r"|\bperhaps\b"
    r"|\bthank(?:s| you)\b",
    re.IGNORECASE,
)
_FINE = (
    r"(?:splendid|great|good|lovely|nice|tidy|neat|excellent|brilliant|perfect|superb|wonderful"
    r"|fantastic|beautiful|clever|smart|magnificent|marvell?ous|awesome|amazing|first-rate)"
)
PLEASED = re.compile(
    rf"^{_LEAD}{_FINE}(?:{_ENDS}|:|(?: \w+)? (?:work|job|answer|choice|pick|call|catch|stuff)\b)"
    rf"|\bwhat an? (?:{_FINE}\b(?! (?:question|point|idea|thought|way))|\w+ (?:piece"
    r"|bit) of work\b)"
    rf"|\b(?:that's|that is|this is|it's|you are|you're|looks?|sounds?) (?:\w+ )?{_FINE}{_ENDS}"
    r"|\b(?:nicely|beautifully|perfectly|neatly|well) (?:done|put|argued|reasoned|spotted|worked"
    rf"|remembered|explained|solved|chosen){_ENDS}|\b(?:proud of|pleased with|delighted"
    r"|impressed)\b"
    r"|\bi (?:like|love) (?:it|that|this)\b|\bbravo\b|\bpa(?:id|ys) off\b|\bhoo?ray\b|\byay\b"
    r"|\byou(?:'re| are) an? (?:\w+ )?(?:star|champion|hero|genius|natural)\b",
    re.IGNORECASE,
)
"""A teacher who is pleased."""
RESERVES = re.compile(
    r"\b(?:but|however|although|though|almost|nearly|partly|partially|half|whether|if|unless|until"
    r"|sort of|kind of|in a way|depends|many|some|could be|might|may|possib\w+|let's|let us|getting"
    r"|please (?!do\W*$)\w+|go ahead|no|so far|on (?:the|a) (?:right|good) (?:track|path|way))\b",
    re.IGNORECASE,
)
BUT_NEXT = re.compile(
    r"^\W*(?:(?:but|however|still|yet|although|though|only)|it (?:could|might) also)\b",
    re.IGNORECASE,
)
_DONE = r"(?= ?(?:[.,;!—–]|-|$)| (?:and|about (?:it|that)|there|all along|again)\b)"
_OTHER_NOUN = (
    r"(?! (?:\w+ )?(?:point|question|issue|problem|way|idea|spirit|kind|sort|step|attitude|start"
    r"|thing|next|first|whole|only|full|same|topic|approach|method)\b)"
)
VERDICT = re.compile(
    r"\b(?:you|that|this|it|he|she|they)(?:'re|'s| are| is| was| were)(?: \w+)? "
    rf"(?:right|correct|it|there|the 1|spot[- ]on|bang on|dead on){_DONE}"
    r"|\b(?:it|he|she)(?:'s| is| was)(?: \w+)? the (?:one|right|correct|answer|solution)\b"
    r"|\b(?:that|this)(?:'s| is| was)(?: (?:exactly|precisely|indeed|just))? "
    rf"(?:the{_OTHER_NOUN}(?: \w+){{1,2}}(?:{_DONE}| (?:that |which |who )?(?:we|i|they|you're|is"
    r"|was|the (?:question|book|exam|sheet|key|task))\b)|(?:your|my) answer\b|(?:what|how"
    r"|who)\b(?![^.;?]{0,30}?"
    r"\b(?:you|find|ask|question)\b))"
    r"|\byou(?:'ve| have)? (?:\w+ )?(?:got|cracked|solved|hit|guessed|nailed|found|figured"
    r"|understood) (?:it|that(?: one)?)(?: (?:out|perfectly|exactly|right))?"
    rf"{_DONE}|\bthere (?:you|we) (?:are|go|have it)\b|\byou have it{_DONE}"
    rf"|\bi (?:can|do|will|could)(?: \w+)? confirm (?:that|it|this){_DONE}|\byou(?:'ve"
    r"| have)? (?:\w+ )?(?:arrived|got there"
    r"|made it|come home|(?:know|knew|remember(?:ed)?) (?:it|this|that|the (?:answer|term|word|name"
    rf"))){_DONE}|\b(?:it|that|this) (?:checks out|works|fits|adds up|matches|stands"
    rf"|holds(?: up| water)?|will do|does the (?:job|trick)){_DONE}|\b(?:it|that)'ll do{_DONE}"
    r"|\bi(?:'d|'ve| have| had| would)?(?: have)? (?:get|got|have|had|pick\w*|cho\w+|say|said|take"
    r"|think|thought|took|taken|write|wrote|written|reach\w*) (?:it |that |the )?(?:same|too)\b",
    re.IGNORECASE,
)
"""Statements about "that" or "you" that it is the answer or right."""
_ANSWER = (
    r"(?:answer|choice|pick|conclusion|selection|decision|verdict|result|proposal|hunch|instinct"
    r"|intuition|solution|suggestion|guess|option|candidate)"
)
_GOOD = (
    r"(?:right|correct|perfect\w*|flawless\w*|faultless|impeccabl\w+|accurate|valid|true|spot[- ]on"
    r"|excellent|brilliant|great|good|fine|sound|solid|convincing|splendid|superb|undeniabl\w+"
    r"|well[- ]\w+|lovely|wonderful|beautiful|well[- ]chosen)"
)
PRAISE = re.compile(
    rf"\b(?:your|the|that|this)(?: \w+)? {_ANSWER}\b[^.;?]{{0,30}}?"
    rf"(?:\b(?:is|was|are|looks|sounds|seems|be)\b[^.;?]{{0,20}}?\b{_GOOD}\b"
    r"|\b(?:holds?|stands?|deserves?|earns?|wins?|can stay|may stay|needs no)\b)"
    rf"|\b{_GOOD}\b[^.;?]{{0,25}}?\b(?:so|as|likewise)(?: (?:is|are|was|does))?,? "
    rf"(?:your|the|that) {_ANSWER}\b|\ban? (?:\w+ )?{_ANSWER} (?:that |which )?i (?:like|love)\b"
    r"|\b(?:leads?|led|brings?|brought|gets?|got|takes?|took) (?:you )?to the (?:right|correct) \w+"
    rf"|^\W*(?:(?:an?|what an?|such an?) )?(?:\w+ )?{_GOOD} (?:answer|choice|pick|conclusion"
    rf"|selection|decision|call){_DONE}",
    re.IGNORECASE,
)
"""Praise of an answer."""
_FAULT = (
    r"(?:add|object\w*|complain\w*|fault|argue|argument|disagree|improve|quarrel|correct|fix|change"
    r"|alter|repair|mend|touch|revise|better)"
)
NO_OBJECTION = re.compile(
    r"(?:\b(?:nothing|little|not a (?:thing|word))|n't (?:a thing|anything|a word))\b[^.;?]{0,12}?"
    rf"(?:(?:\bto|\bi'd|\bi would|\bi could|\bi'll|\bwe'd|\bthat needs)\b(?: \w+)? {_FAULT}\b"
    r"|\b(?:wrong|amiss)\b(?! with (?:\w+ing|your \w+)\b))"
    r"|\bno (?:objections?|complaints?|quarrel|argument|corrections?|changes?)\b"
    r"|\bi (?:can(?:'t|not)|could(?:n't| not)|wouldn't|won't|don't|would not)\b[^.;?]{0,25}?"
    rf"\b{_FAULT}\b|\bcouldn't have\b[^.;?]{{0,25}}?\bbetter\b"
    r"|(?:\bnot|n't)(?: \w+)? (?:wrong|mistaken|amiss)\b"
    r"(?! (?:way|idea|approach|track|direction|to|with|question)\b)",
    re.IGNORECASE,
)
"""An objection that is denied."""
REWARD = re.compile(
    r"\b(?:full|top) marks\b|\b(?:\d+|a|one) points? (?:for|to) you\b|\bgold star\b|\byou win\b"
    r"|\bhigh[- ]five\b|\bhoo?ra[yh]\b|\bhats? off\b|\btake a bow\b|\bcongrat\w+|\bkudos\b"
    rf"|\bbravo\b|\bwell done{_ENDS}|\bthat settles it\b"
    r"|\b(?:case|question|matter|that one|this one)(?:'s| is)? (?:closed|settled|done|solved)\b",
    re.IGNORECASE,
)
APPROVING = re.compile("[✅✔☑👍🎯💯🎉🥳👏🏆🙌👌]")
_IT = r"(?:it|that|this|that one|this one|him|her|them|your (?:answer|choice|pick|guess))"
WRITE_DOWN = re.compile(
    rf"\b(?:write|jot|note|put|scribble|ink|pencil|copy|type|set|get) {_IT} (?:down|in"
    r"|on (?:paper|the|your))\b"
    rf"|\b(?:tick|circle|mark|enter|submit|record|underline|lock|hand|ink) {_IT}(?: in"
    rf"| down)?{_DONE}"
    r"|\b(?:let|leave|keep) (?:it|that|this|(?:the|your) (?:answer|circle|cross|tick|mark|choice"
    r"|pick|letter)|what you (?:have|wrote|put|said))\b[^.;?]{0,12}?(?:(?:stay|stand|be|alone)\b"
    r"|(?:as|where|how) it (?:is|stands)\b)"
    rf"|\b(?:go|stick|run|stay) (?:ahead )?with {_IT}{_DONE}"
    r"|\b(?:tick|check) (?:this|that|the|it)(?: \w+)? off\b",
    re.IGNORECASE,
)
FOR_NOW = re.compile(
    r"\b(?:as|if|whether|before|then (?!we\b)\w+|compare|test|verify|hypothes\w+|guess"
    r"|for now|first|reason|why|evidence|mind|not|other|others|later|skip|leave|come back|return"
    r"|once|when|until|after|feature|explain|unless|both|also|even)\b|n't\b",
    re.IGNORECASE,
)
"""Words that show that what is written down or left behind is not settled."""
_UNIT = (
    r"(?:question|problem|exercise|sentence|item|one|task|puzzle|riddle|card|round|sum|page|topic)"
)
NEXT_QUESTION = re.compile(
    r"\b(?:on to|onto|go(?: on)? to|move(?: on)?(?: to)?|proceed(?: to)?|go on with|continue with"
    r"|tackle|ready for|turn to|time for|try|do|go for|start)\b(?![^.;?]{0,12}\byour\b)"
    r"[^.;?]{0,12}?\b(?:the next\b(?! (?:step|part|hint|option|clue|point|thing))"
    rf"|(?:next|following|another|new) {_UNIT}\b|(?:{_UNIT}|number) \d)"
    rf"|^\W*next(?: {_UNIT})?(?:,? please)?\W*$|\bmove on{_ENDS}|\bnext up\b|\bwhat's next\b",
    re.IGNORECASE,
)

NOT = (
    rf"(?:{_BE}(?:n't| not| never)|may not|ain't|cannot|never|won't|can't|'s (?:not|never)"
    r"|'re not|'m not)"
)
_VERDICT_NOUN = (
    r"(?:it|him|her|one|ones|right|correct|true|answers?|fits?|works?|do|counts?|qualif\w+|match\w*"
    r"|options?|solution|winner|case|be|either)"
)
_ELLIPTIC_NO = (
    rf"{_HE}(?: \w+)? ?{NOT}(?:{_ENDS}| (?:either|i'm|though|this time)\b"
    r"|(?: (?:quite|really|the|an?|at all|actually|so|very|exactly|my|your)){0,2}"
    rf" {_VERDICT_NOUN}\b| (?:so|quite|there)\b| (?:the|what|how|who|where)\b{_OTHER_NOUN})"
    rf"|{_HE}(?:'s| is| was|'re| are| were)(?: \w+)? (?:wrong|incorrect|false|out|off|mistaken)\b"
    r"|i (?:don't|do not|hardly) think so\b"
    r"|not (?:quite|really|exactly|at all|either|him|her|it|that one|this one)\b"
    rf"|not(?: (?:that|this|so))?(?:{_ENDS}| either\b| this time\b)"
    rf"|(?:never|out)(?:{_ENDS}| (?:as well|too)\b)"
    r"|(?:neither|none|not (?:1|one|any))(?: one| 1)?(?: of (?:them|those|these|the"
    r"|your)(?: \w+)?)?"
    rf"(?:{_ENDS}| {_BE}\b| (?:fits?|works?)\b)"
)
_MORE_OR_LESS = (
    r"(?:(?:a|much|even|slightly|far|way) )?(?:(?:bit|little|lot) )?"
    r"(?:later|earlier|higher|lower|larger|bigger|smaller|more|less|fewer|older|younger|longer"
    r"|shorter)(?= than (?:that|it|this)\b|\W*$)"
)
REFUSAL = re.compile(
    rf"^{_LEAD}(?:{_NO}(?= ?(?:[.,;:!—–-]|$)"
    r"| (?:and|it|that|not|sir|i|luck|they|again|too|either)\b)"
    rf"|{_ELLIPTIC_NO}|{_MORE_OR_LESS}|too (?!bad\b)\w+{_ENDS}"
    r"|(?:try|guess|think|choose|pick) (?:again|once more|another|something else)\b"
    r"|(?:have |take )?another (?:go|try|guess)\b"
    r"|(?:close|almost|nearly)(?= ?(?:[.,;:!—–-]|$)| but\b)"
    r"|far from|(?:far|miles|way) off|off the mark|missed|afraid not|unlucky"
    r"|keep (?:guessing|trying)|(?:bad|hard|tough) luck)"
    r"|\b(?:think|guess) again\b|\btry (?:again|once more|another one|something else)\b"
    rf"|(?:[,:;—–-]|\bbut|\b(?:is|'s)(?: an?)?) {_NO}\W*$",
    re.IGNORECASE,
)
"""A refusal at a sentence's start, all of its last words, or advice to try again."""
RULES_OUT = re.compile(
    rf"\b{NOT}(?: [\w']+){{0,4}}? {_VERDICT_NOUN}\b"
    rf"|\b{NOT}(?: (?:really|actually|either|the|an?))? ?{SIGN}(?=\W*(?:$|[.,;!]|or|nor|either))"
    r"|(?:\b(?:is|are|was|were|be|both|all)|'s|'re)(?: \w+)? (?:out|wrong|incorrect|false|gone"
    r"|excluded|impossible|ruled out|eliminated|off the (?:table|list))\b"
    r"|\b(?:rul|cross|strik|scratch|eliminat|exclud|discard|drop|forget|ignor|dismiss|reject)"
    rf"(?:e|es|s|d|ed|ing)?\b[^.;?]{{0,30}}?(?:{SIGN}|\bout\b|\boff\b)"
    rf"|^\W*(?:[\w']+ ){{0,2}}(?:not|neither|nor|no)\b[^.;?]{{0,15}}?{SIGN}"
    r"(?=\W*(?:$|[.,;!]|or|nor))"
    rf"|{SIGN}[^\w{SIGN[1:-1]}]{{1,4}}(?:no|nope|wrong|out|neither)\b|\btoo \w+\W*$",
    re.IGNORECASE,
)
"""A verdict against the options that are named next to it."""
NEGATIVE = re.compile(rf"\b{NOT}\b|\b(?:no|not|never|nor|neither|hardly)\b", re.IGNORECASE)
TURNS = re.compile(
    r"[;:—–]|(?:^|,? )\b(?:but|while|whereas)\b|, (?:so|and)\b"
    r"|\band (?=(?:then |rather |instead )?(?:follow|take|keep|go|stay|stick|use|trust|choose|pick"
    r"|write|put)\b)",
    re.IGNORECASE,
)
"""Positions where a sentence turns to something else."""
ALSO = re.compile(r"^\W*(?:and|also|nor|neither|likewise|same|as for|similarly)\b", re.IGNORECASE)
"""How a sentence goes on with a denial."""
