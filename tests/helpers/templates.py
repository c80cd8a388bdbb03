"""Chat templates with the behaviour of four public families, written for these tests."""

LLAMA31 = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}"
)
"""Trims every message."""

LLAMA32 = (
    "{{- bos_token }}"
    "{%- set today = strftime_now('%d %b %Y') %}"
    "{%- if messages[0]['role'] == 'system' %}"
    "{%- set said = messages[0]['content'] | trim %}{%- set rest = messages[1:] %}"
    "{%- else %}{%- set said = '' %}{%- set rest = messages %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{- 'Today Date: ' + today + '\n\n' + said + '<|eot_id|>' }}"
    "{%- for message in rest %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}"
)
"""Tells today's date in a system header of its own, and trims."""

QWEN3 = (
    "{%- set ns = namespace(last=-1) %}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}"
    "{%- for message in messages %}"
    "{%- set content = message['content'] %}"
    "{%- if message['role'] == 'assistant' %}"
    "{%- set thought = '' %}"
    "{%- if '</think>' in content %}"
    "{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}"
    "{%- endif %}"
    "{%- if loop.index0 > ns.last %}"
    "{%- set content = '<think>\n' + thought + '\n</think>\n\n' + content %}"
    "{%- endif %}"
    "{%- endif %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Drops the thinking of earlier turns; shows a thinking block in the last one, thought or not."""

GEMMA = (
    "{{- bos_token }}"
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- raise_exception('System role not supported') }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('Conversation roles must alternate user/assistant') }}"
    "{%- endif %}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{- '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}"
)
"""Refuses a system message and turns that do not alternate, and trims."""

ALL = {"llama-3.1": LLAMA31, "llama-3.2": LLAMA32, "qwen3": QWEN3, "gemma": GEMMA}
