"""Words that everybody uses whatever they talk about."""

_WORDS = """
true false back list text dictionary
a actual actually after again all already also always am an and another answer answered answers
any anybody anyone anything applies apply appropriate are aren as ask asked asking asks at bad
basically be been before behavior behaviour being best better bit both but by can care cares case
cases certain choice choose clear code come comes consider correct could couldn decide default
defaults depend depends describe described describes detail detailed details did didn different
do does doesn doing don done each either else even ever every everyone everything exactly example
examples expect expected expects explain explained explains feel few fine first for format from
fully function functions get gets getting give given gives giving go goes going gone good got
great guess had hadn happen happened happens has hasn have haven having he hello help her here
hey hi him his how i idea ideas if imagine important in indeed input inputs into is isn it its
itself judgement judgment just keep keeps kind know known knows last later least leave leaves
less let lets like liked likely likes little ll look looking looks lot lots made make makes
making many matter matters may maybe me mean means meant might mind mine minus more most much
must my myself necessary need needed needs neither never next nice no nobody none nope nor normal
normally not nothing now number numbers of off often ok okay on once one only onto opinion option
options or other ought our ours out output outputs over part perhaps plain please plus point
possible possibly prefer preference preferred probably program put question questions quite
rather re really reasonable relevant remember required result results return returned returns
right said same say saying says see seem seems seen sees sense sensible shall she should shouldn
simple simplest simply so some somebody someone something sometimes soon sorry sort sound sounds
special still strong such sure take taken takes talk task tell tells than thank thanks that the
their theirs them then there these they thing things think thinking thinks this those thought
time times to told too two type types understand up us use used uses using usual usually value
values ve very want wanted wants was wasn way ways we well were weren what when where whether
which while who whom whose why will wish with within without won work working works would wouldn
wrong yeah yep yes yet you your yours yourself
"""
COMMON = frozenset(_WORDS.split())
