"""Pre-training of the small policies that ship with convbench.

`pretrain` fits `local:pocket`, `pretrain_grids` fits `local:pocket-grids`. `corpus`, `habits`,
`style`, `thoughts`, `edits` and `grids_corpus` make the training text, from the worlds of
`convbench.pocket`; `tokenizer` and `grids_tokenizer` make the tokenizers. All of it
needs a checkout: the wheel has only the weights.
"""
