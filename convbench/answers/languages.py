"""Answers in other languages than English: words for an answer, and what joins them to an option.

A language is a line of words here. As in English, a noun counts on its own ("het juiste antwoord is
C") and a denial does not ("het antwoord is niet C"): the word after it is no option, and a few
languages deny after the option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.answers import claims, wording
from convbench.answers.options import OptionMatcher, Statement

_NOUNS = (
    r"respuesta|réponse|antwort|lösung|resposta|risposta|antwoord|keuze|cevap|cevab[iı]m?|yan[iı]t"
    r"|ответ|відповідь|odpowied[zź]|svar(?:et)?|vastaus|odpověď|odpoveď|răspuns(?:ul)?|válasz(?:om)?"
    r"|jawaban(?:nya)?|đáp\s+án|câu\s+trả\s+lời|απάντηση|תשובה|إجابة|اجابة|جواب|پاسخ|उत्तर|जवाब"
    r"|উত্তর|பதில்|คำตอบ|jibu|sagot|kunci|juiste\s+(?:keuze|optie)|beste\s+(?:keuze|optie)"
    r"|bonne\s+option|richtig(?=\s+ist)|correct[oa](?=\s+es)|juist(?=\s+is)|meilleure\s+option|richtige\s+option|opci[oó]n(?=\s+(?:corr|exact))"
    r"|opção(?=\s+corr)|opzione(?=\s+corr)|alternativ(?:a(?=\s+(?:corr|cert))|et(?=\s+är))|letra(?=\s+(?:corr|cert))"
    r"|doğru\s+(?:seçenek|şık)|सही\s+विकल्प|خيار(?=\s+(?:ال)?صحيح)|правильный\s+вариант"
    r"|答案|答え|正解|正答|정답|답|正确选项|正確選項|正しい選択肢"
)
_QUALITY = (
    r"correcta|correcte|exacta|finale?|definitiva|corretta|correta|certa|esatta|giusta|bonne"
    r"|الصحيحة|الصحيح|صحيح|النهائية|yang\s+(?:benar|tepat)|đúng|corect|correct|benar|הנכונה|ที่ถูกต้อง"
)
_IS = (
    r"(?:es|est|ist|lautet|wäre|è|é|is|luidt|er|är|on|je|jest|to|este|là|adalah|ialah|είναι|ni|ay"
    r"|valt\s+op|fällt\s+auf|se\s+porte\s+sur|recae\s+en|هي|هو|است|היא|हे|है|হল|হলো|คือ|это|є|—)(?![^\W_])|(?:是|为|為|選|选|应为|应该是|は|が|은|는|이|가)"
)
_THUS = (
    r"pues|entonces|por\s+(?:lo\s+)?tanto|donc|alors|also|somit|daher|folglich|dus|daarom|quindi"
    r"|dunque|portanto|logo|więc|zatem|alltså|altså|siis|tedy|deci|tehát|vậy|jadi|следовательно"
    r"|значит|إذن|إذا|لذلك|इसलिए|olarak|o\s+halde|buna\s+göre|natürlich|natuurlijk|claramente"
)
_ARTICLE = (
    r"la|el|le|der|die|das|het|de|il|lo|den|det|η|το|ο"
    r"|[ao](?=\s+[*(\"]*(?:[a-z](?![^\W_])|opç|opz|letra|alternativa))"
)
_OPTION = (
    r"opci[oó]n|opção|opzione|option|optie|alternativ[ea]?|letra|lettre|lettera|buchstabe|letter"
    r"|variante?|вариант|варіант|opcja|opsi|seçenek|şık|विकल्प|বিকল্প|الخيار|خيار|الحرف|گزینه|选项|選項"
    r"|選択肢|ตัวเลือก|lựa\s+chọn|phương\s+án"
)
_GAP = r"[\s*_`~\"'(]*+"
_TAIL = (
    rf"(?:{_GAP}(?:{_QUALITY})(?!\w))?[*_`]*+"
    rf"(?:{_GAP}(?:{_THUS})(?!\w),?)?"
    rf"(?P<link>\s*+[:=–—]|\s*+(?:{_IS})(?:\s*+:)?|(?=\s))"
    rf"(?:{_GAP}(?:{_THUS})(?!\w),?(?:\s?:)?)?"
    rf"(?:{_GAP}(?:l['’]|(?:{_ARTICLE})(?!\w)))?(?:[\s*_`~\"(]*+(?:{_OPTION})(?!\w)\s*:?)?\s*"
)
_NAMED = re.compile(rf"(?P<noun>{_NOUNS}){_TAIL}")
_CHOSEN = re.compile(
    r"(?:ik\s+(?:kies(?:\s+voor)?|ga\s+voor|neem|zou\s+(?:zeggen|kiezen\s+voor))|(?:wähle|nehme)\s+ich|ich\s+würde(?:\s+sagen|(?=\s+\S{1,4}\s+(?:sagen|wählen|nehmen)\b))|tippe\s+auf|ich\s+(?:wähle|nehme|entscheide\s+mich\s+für)|elijo|escojo"
    r"|me\s+quedo\s+con|yo\s+diría|diría\s+que\s+es|je\s+(?:dirais|pencherais\s+pour|vote\s+pour|retiens)|opto\s+por|je\s+(?:choisis|prends|réponds)|escolho|scelgo|wybieram"
    r"|jag\s+väljer|jeg\s+velger|jeg\s+vælger|valitsen|vybírám|aleg|я\s+(?:выбираю|выберу)"
    r"|выбираю|обираю|saya\s+(?:memilih|pilih)|tôi\s+chọn|أختار|اخترت)(?!\w)"
    rf"(?:{_GAP}(?:l['’]|(?:{_ARTICLE})(?!\w)))?(?:[\s*_`~\"(]*+(?:{_OPTION})(?!\w)\s*:?)?\s*"
)
_CONCLUDED = re.compile(
    rf"(?<!\w)(?:(?:{_THUS})(?!\w),?\s(?:c['’]est|es|est|ist|is|è|é|het\s+is|dat\s+is|das\s+ist|es\s+ist|это|wird\s+es)?"
    rf"|c['’]est(?:\s+(?:{_THUS})(?!\w))?|(?:creo|pienso)\s+que\s+es|penso\s+(?:che\s+)?sia|acho\s+que\s+é"
    r"|je\s+(?:pense|crois)\s+que\s+c['’]est|ich\s+(?:glaube|denke),?\s+(?:dass\s+)?es\s+ist|ik\s+denk(?:\s+dat\s+het)?"
    r"|(?:(?<=[.!?:] )|(?<=\n)|^)(?:es|è|é)|(?:het|dat)\s+is|is\s+het|(?:das|es)\s+ist|bence)"
    rf"(?:\s(?:l['’]|(?:{_ARTICLE})(?!\w)))?(?:[\s*_`~\"(]*+(?:{_OPTION})(?!\w)\s*:?)?\s*"
)
"""What a sentence comes to, as a soft statement: "dus C", "c'est la C"."""
_RIGHT = re.compile(r"(?:\s+(?:richtig|korrekt|juist|correct[aeo]?|giusta|certa)\b)?")
_CHOSEN_SPACELESS = re.compile(r"(?:(?<![^\n。，,])|我|所以|因此|故|应该|應該)[选選](?:择|擇)?\s*")
_JUDGED = re.compile(
    r"\s(?:es|est|ist|is|è|é|är|er|jest|to|este|adalah|là)\s+(?:(?:la|el|die|der|das|het|de|a|o"
    r"|den|det|meine|mi|ma|mijn)\s+)?(?:(?:bonne|richtige|korrekte|beste|juiste|goede|correta"
    r"|rätta|rigtige|riktige|poprawną|prawidłową|opción|opção|opzione|option|optie)\s+)?"
    r"(?:respuesta|réponse|antwort|antwoord|resposta|risposta|svaret|odpowiedzi[aą]|jawaban"
    r"|correcta|correta|corretta|richtig|juist|correcte|poprawna|đáp\s+án)(?!\w)"
    r"(?!\s+(?:incorrecta|fausse|errada))"
)
_JUDGED_BEHIND = re.compile(
    r"\s?(?:是|為|为)\s*(?:正确|正確|对的|對的|答案)|\s?が\s*(?:正解|正しい|答え)|\s?[가이]\s*(?:정답|맞)"
    r"|['’]?y?[iıuü]?(?:\s(?:şıkkını|seçeneğini))?\s(?:seçiyorum|seçerim|seçtim|işaretliyorum|işaretlerim)"
    r"|\s(?:doğru\s+(?:cevap|yanıt|seçenek)|هو\s+(?:الجواب|الخيار)\s+الصحيح|هي\s+الإجابة\s+الصحيحة"
    r"|सही\s+(?:उत्तर|जवाब|विकल्प))"
    r"|\s(?:को\s+)?(?:चुनता|चुनती|चुनूँगा|चुनूंगा)"
)
_BEHIND = re.compile(
    r"[*_`)\"'\s]*+(?:değil|deği|नहीं|না|ではな|じゃな|가\s*아니|이\s*아니|아닙|아니|ليست|nicht\b|niet\b"
    r"|(?:y[iıuü]\s+)?eliyorum)"
)
_WRONG = re.compile(
    r"(?:falsche?|incorrect[eao]?|fausse|mauvaise|sbagliata|errada|verkeerde|foute|onjuiste|yanlış|gal(?:at)?"
    r"|गलत|неправильный|неверный|błędna|fel|feil|forkert[e]?|错误|誤|오|no|not|nie|wenn|si|se|als|eğer"
    r"|если|अगर|如果|若|もし|إذا|jika|nếu|gdyby|om|hvis|不)\W*(?:la\s+|die\s+|de\s+|het\s+)?$"
)


def foreign_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the statements of an answer in other languages than English, in no fixed order.

    `text` is in plain form (`normalize_text`) and `low` the same text by `lower_case`. A
    statement's letter is `NOBODY` (empty) where two options are named.
    """
    ascii_alone = text.isascii()
    named = [
        m for m in _NAMED.finditer(low) if ascii_alone is False or _begins_a_word(low, m.start())
    ]
    chosen = [*_CHOSEN.finditer(low), *(() if ascii_alone else _CHOSEN_SPACELESS.finditer(low))]
    for match in (*named, *chosen):
        option = options.option_at(text, match.end())
        if option is None or _BEHIND.match(low, option.end) or _is_refused(low, match.start()):
            continue
        if match.re is _NAMED and not match["link"] and not _ends_soon(low, option.end):
            continue
        if text[claims.sentence_end(text, option.end) - 1] not in "?؟？":
            yield Statement(match.start(), option.end, option.letter)
    for match in _CONCLUDED.finditer(low):
        option = options.option_at(text, match.end())
        end = _RIGHT.match(low, option.end).end() if option else 0  # type: ignore[union-attr]
        if option and wording.CLOSED.match(text, end) and not _is_refused(low, match.start()):
            yield Statement(match.start(), option.end, option.letter, False, False, option.by_text)
    behind = () if ascii_alone else _JUDGED_BEHIND.finditer(low)
    for match in (*_JUDGED.finditer(low), *behind):
        named_option = options.option_before(text, match.start())
        if named_option and not _is_refused(low, named_option.end):
            yield Statement(named_option.end, match.end(), named_option.letter)


def _begins_a_word(low: str, at: int) -> bool:
    return not low[max(0, at - 1) : at].isalnum()


_LENIENT = re.compile(
    r"[*_`)\"']*+(?:['’]?[^\W\d_]{1,8})?\s*+(?:[^\s.,;:!?()]{1,14}\s*+){0,2}(?:[.,;!)\n]|$)|[*_`)\"']*+\s*+(?:है|होगा)(?!\w)"
)


def _ends_soon(low: str, end: int) -> bool:
    """Return whether hardly more than a copula follows: "cevap C'dir", "उत्तर C है"."""
    return _LENIENT.match(low, end) is not None


def _is_refused(low: str, start: int) -> bool:
    """Return whether the words before say that it is wrong, or supposed."""
    return _WRONG.search(low[max(0, start - 24) : start]) is not None
