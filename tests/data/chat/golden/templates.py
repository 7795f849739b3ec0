"""Chat templates of the tests: with the constructs of published ones, in words of our own."""

# A turn between marks, as ChatML.
MARKED_CHATML = r"""
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
            {{- message['content'] + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""

# Headers of roles, trimmed contents, the date, the beginning of the text once.
HEADERS = r"""
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_text = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_text = "" %}
{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "1 Feb 2025" %}{%- endif %}
{{- "<|start|>system<|sep|>\n\n" }}
{{- "Date: " + date_string + "\n\n" }}
{{- system_text }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|sep|>\n\n' }}
        {%- if message.role == 'assistant' -%}
            {% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}
        {%- else %}
            {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endif %}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|sep|>\n\n' -}}
        {% generation %}{{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}{% endgeneration %}
    {%- else %}
        {{- "<|start|>ipython<|sep|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|sep|>\n\n' }}
{%- endif %}
"""

# Instructions in brackets; roles must take turns.
BRACKETS = r"""{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns: user, assistant, user, ...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{% generation %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""

# A namespace, tools, the last question from behind, thoughts that are left out of the past.
THOUGHTS = r"""
{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- generation %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and thought)) %}
            {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool>\n' }}
        {{- content }}
        {{- '\n</tool>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

# Lines without tags, as plain models have them; no white space control.
PLAIN = """{% for message in messages %}
{% if message.role == 'user' %}
User: {{ message.content }}
{% elif message.role == 'assistant' %}
Assistant:{% generation %} {{ message.content }}{{ eos_token }}
{% endgeneration %}
{% else %}
[{{ message.role | upper }}] {{ message.content }}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}
Assistant:{% endif %}
"""

# A macro, items of a dict, filters with arguments, tests by name, a text that is kept.
MACROS = r"""
{%- macro describe(name, parameters, depth=0) -%}
    {{- '  ' * depth ~ name ~ ': ' -}}
    {%- for key, value in parameters.items() -%}
        {%- if value is mapping -%}
            {{- '\n' ~ describe(key, value, depth=depth + 1) -}}
        {%- else -%}
            {{- key ~ '=' ~ (value if value is string else value|tojson) -}}{%- if not loop.last %}, {% endif -%}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro -%}
{%- set users = messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list %}
{{- '<s>' ~ users | length ~ ' of ' ~ (messages | rejectattr('role', 'equalto', 'user') | list | length) ~ '\n' }}
{%- set roles %}{% for r in messages | map(attribute='role') | unique %}{{ r }}{% if not loop.last %}|{% endif %}{% endfor %}{% endset %}
{{- roles ~ '\n' }}
{%- for message in messages if message.role != 'system' %}
{{- loop.index ~ '/' ~ loop.length ~ ' ' ~ message.role|title ~ (' after ' ~ loop.previtem.role if loop.previtem is defined else '') ~ ': ' }}
{%- if message.role == 'assistant' %}{% generation %}{{- message.content or '(nothing)' }}
{%- for call in message.tool_calls or [] %}
{{- '\n' ~ describe(call.function.name, call.function.arguments) }}
{%- endfor %}{{ '<|im_end|>' }}{% endgeneration %}{% else %}{{- message.content }}{% endif %}
{{- '\n' }}
{%- else %}
{{- 'no messages' }}
{%- endfor %}
"""

# break, continue, comments, raw text, trimmed blocks.
JUMPS = """{# A comment
 over lines #}
{% raw %}{{ not a tag }}{% endraw %}

{% for message in messages %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
    {% if loop.index > 5 %}
        {% break %}
    {% endif %}
    {%+ if message.role == 'assistant' %}
A: {% generation %}{{ message.content }}<|im_end|>{% endgeneration +%}

    {%- else %}
Q: {{ message.content -}}

    {% endif %}
{% endfor %}
{{ "end" -}}
"""

# JSON with indents and sorted names, numbers, lists of tuples.
NUMBERS = r"""{%- set total = namespace(n=0, words=[]) %}
{%- for m in messages %}{% set total.n = total.n + m.content|default('')|length %}{% set total.words = total.words + [m.role[0]] %}{% endfor -%}
{{ total.n }} {{ total.n / 4 }} {{ total.n // 4 }} {{ total.n % 7 }} {{ -total.n // 4 }} {{ 2 ** 10 }} {{ total.words }} {{ total.words | join('-') }}
{% for m in messages -%}
{% if m.role == 'assistant' %}{% generation %}{{ {'role': m.role, 'content': m.content|default(none), 'calls': m.tool_calls|default([])} | tojson(indent=2) }}<|im_end|>{% endgeneration %}
{% else %}{{ m.items() | list | tojson }}{% endif %}
{% endfor %}
{{- range(3) | list }} {{ range(10, 0, -3) | list }} {{ (1, 'a', none, true, 1.5) }} {{ {'a': [1, {'b': "it's"}]} }}"""

# The last message is treated in another way, and older ones are shortened.
LAST = r"""
{%- set kept = messages if messages|length < 4 else messages[-3:] -%}
{%- for message in kept -%}
{%- if loop.last and message.role == 'assistant' -%}
{{ '>> ' }}{% generation %}{{ message.content.split(' ')[:5] | join(' ') }}{{ eos_token }}{% endgeneration %}
{%- else -%}
{{ message.role[0] | upper }}: {{ message.content | replace('\n', ' ') | trim }}{{ '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '>> ' }}{% endif -%}
"""

# Every role by name, else an error.
STRICT = r"""{%- if messages[0].role not in ['system', 'user'] %}{{ raise_exception('begins with ' ~ messages[0].role) }}{% endif -%}
{%- for message in messages -%}
    {%- set role = {'user': 'human', 'assistant': 'model', 'system': 'rules'}.get(message.role, '') -%}
    {%- if not role %}{{ raise_exception("the role '" ~ message.role ~ "' is unknown") }}{% endif -%}
    <turn {{ role }}>{% if role == 'model' %}{% generation %}{{ message.content }}</turn>{% endgeneration %}{% else %}{{ message.content }}</turn>{% endif +%}
{% endfor %}
{%- if add_generation_prompt %}<turn model>{% endif %}"""

# The last answer begins with an empty thought, older ones have none.
LAST_TURN = r"""{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{% if loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# The prompt begins a thought that answers have only as an empty one: what the prompt has is not the assistant's.
PROMPT_THOUGHT = r"""{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{{ '<think>' }}{% generation %}{{ '</think>' + m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"""

# The first message is looked at, so nothing is rendered of no messages.
FIRST_MESSAGE = r"""{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# Thoughts are cut off everywhere, the prompt begins one, and what follows a tool has no header.
CUT_THOUGHTS = r"""
{{- bos_token }}
{%- set ns = namespace(rules='', is_tool=false) %}
{%- for m in messages %}{% if m.role == 'system' %}{% set ns.rules = m.content %}{% endif %}{% endfor %}
{{- ns.rules }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- set ns.is_tool = false %}
        {{- '<|user|>' + m.content }}
    {%- elif m.role == 'assistant' and m.tool_calls %}
        {{- '<|assistant|>' }}
        {%- generation %}
        {%- for call in m.tool_calls %}{{ '<call>' + call.function.name + '\n' + call.function.arguments | tojson + '</call>' }}{% endfor %}
        {{- '<|eot_id|>' }}
        {%- endgeneration %}
    {%- elif m.role == 'assistant' %}
        {%- set text = m.content.split('</think>')[-1] %}
        {%- if not ns.is_tool %}{{ '<|assistant|>' }}{% endif %}
        {%- generation %}{{- text + '<|eot_id|>' }}{% endgeneration %}
        {%- set ns.is_tool = false %}
    {%- elif m.role == 'tool' %}
        {%- set ns.is_tool = true %}
        {{- '<output>' + m.content + '</output>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and not ns.is_tool %}{{ '<|assistant|><think>\n' }}{% endif %}"""

ALL = {"marked_chatml": MARKED_CHATML, "headers": HEADERS, "brackets": BRACKETS, "thoughts": THOUGHTS, "plain": PLAIN,
       "macros": MACROS, "jumps": JUMPS, "numbers": NUMBERS, "last": LAST, "strict": STRICT, "last_turn": LAST_TURN,
       "prompt_thought": PROMPT_THOUGHT, "first_message": FIRST_MESSAGE, "cut_thoughts": CUT_THOUGHTS}
# Those whose answers are also found without marks.
WITHOUT_MARKS = ["marked_chatml", "headers", "brackets", "thoughts", "last_turn", "prompt_thought",
                 "first_message", "cut_thoughts"]

# Small texts, each rendered with `x`.
SNIPPETS = [
    "{{ x.a }} {{ x['a'] }} {{ x.none_such }} {{ x.list[0] }} {{ x.list[-1] }} {{ x.list[9] }}|",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [] ~ {} }}", "{{ [1, 2.5, 'a', none, (1,)] }}", "{{ 'x' * 3 }}{{ [0] * 2 }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 7.5 % 2 }} {{ -2 ** 2 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [1] == [1] }}",
    "{{ 'a' in 'abc' }} {{ 1 in [1] }} {{ 'a' in x }} {{ 'zz' not in x }} {{ not 1 in [2] }}",
    "{{ x.s[1:3] }} {{ x.s[::-1] }} {{ x.list[::2] }} {{ x.list[-2:] }} {{ x.list[5:1:-1] }} {{ x.s[-100:2] }} {{ x.list[:-1] }}",
    "{{ x.u[0] }} {{ x.u[::-1] }} {{ x.u | length }} {{ x.u | first }} {{ x.u | last }} {{ x.u|list }}",
    "{{ '  a b  '.strip() }}|{{ '  a b  '.rstrip() }}|{{ '  a b  '.lstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ x.space | trim }}|",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ ''.split(',') }} {{ ''.split() }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abcabc'.replace('b', 'X', 1) }} {{ 'abc'.replace('', '-') }}",
    "{{ 'hello wOrld'.title() }} {{ 'hello wOrld'.capitalize() }} {{ 'aB'.upper() }} {{ 'aB'|lower }} {{ 'they are' | title }}",
    "{{ 'abcb'.find('b') }} {{ 'abcb'.rfind('b') }} {{ 'abc'.find('z') }} {{ 'abcb'.count('b') }} {{ '-'.join(['a', 'b']) }} {{ 'ab'.removeprefix('a') }} {{ '12'.isdigit() }}",
    "{{ x | tojson }}", "{{ x | tojson(indent=2) }}", "{{ x.d | tojson(sort_keys=true) }}", "{{ x.d | tojson(separators=(',', ':')) }}",
    "{{ {} | tojson(indent=4) }} {{ [] | tojson(indent=4) }} {{ [[], {}] | tojson(indent=1) }} {{ '\\u00e9\\n\\\"/' | tojson }} {{ 1.0 | tojson }} {{ none|tojson }}",
    "{% for k, v in x.d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in x.d %}{{ k }}{% endfor %}", "{% for c in 'aé' %}{{ c }}.{% endfor %}",
    "{% for i in [] %}a{% else %}b{% endfor %}", "{% for i in range(5) if i % 2 %}{{ i }}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set a = 1 %}{% for i in [1, 2] %}{{ a }}{% set a = 5 %}{{ a }}{% endfor %}{{ a }}",
    "{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a %}x {{ 1 }} {% endset %}[{{ a }}]", "{% set a | upper | trim %} x {% endset %}[{{ a }}]", "{% filter upper %}a{{ 'b' }}{% endfilter %}",
    "{% macro m(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(1, 5, 6) }} {{ m() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% set g = 7 %}{% macro m() %}{{ g }}{% set g = 8 %}{{ g }}{% endmacro %}{{ m() }}{{ g }}",
    "{{ none is none }} {{ y is defined }} {{ y is undefined }} {{ x is mapping }} {{ x.list is iterable }} {{ x.list is sequence }} {{ x.s is string }} {{ x.s is iterable }} {{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.5 is float }} {{ true is boolean }} {{ false is false }} {{ 1 is true }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 'a' is in ['a'] }} {{ 1 is not none }} {{ 2 is lt 3 }} {{ 2 is ge(3) }}",
    "{{ y | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | d('e', boolean=true) }} {{ y.z | default('q') if y is defined else 'no' }}",
    "{{ [3, 1, 3, 2] | unique | list }} {{ ['a', 'A'] | unique | list }} {{ [1, 2] | reverse | list }} {{ 'abc' | reverse }} {{ [[1, 'a'], [2, 'b']] | map('first') | list }} {{ ['a', 'b'] | map('upper') | join('+') }}",
    "{{ [{'n': 1}, {'n': 2}, {}] | map(attribute='n') | list }} {{ [{'n': 1}, {}] | map(attribute='n', default=0) | list }} {{ [{'n': 1}, {'n': 2}] | selectattr('n', 'gt', 1) | list }} {{ [{'n': 0}, {'n': 2}] | rejectattr('n') | list }} {{ [0, 1, 2] | select('odd') | list }} {{ [0, 1] | select | list }} {{ [{'a': {'b': 5}}] | map(attribute='a.b') | list }}",
    "{{ '42' | int }} {{ 'x' | int }} {{ 3.9 | int }} {{ 'x' | int(7) }} {{ 1 | string + 'a' }} {{ -3 | abs }} {{ 3 | float }} {{ [1, 2] | join(', ') }} {{ [1, none] | join }}",
    "{{ 'a\\nb\\n\\nc' | indent }} {{ 'a\\nb' | indent(2, true) }} {{ {'b': 1, 'A': 2} | dictsort }} {{ x.d | items | list }} {{ [1, 2] | last }} {{ [] | first }}|",
    "{{ 'yes' if x.a else 'no' }} {{ 'yes' if false }}| {{ 1 if 0 else 2 if 0 else 3 }}", "{{ x.a and x.none_such }} {{ x.none_such or 'z' }} {{ not x.none_such }}",
    "{{ 'it\\'s' }} {{ \"q\\\"\" }} {{ ['it\\'s', 'q\"', 'b\\'\"'] }} {{ ['\\n\\t\\\\', 'é', '\\x00'] }}", "{{ 1e3 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1_000 }} {{ 100000.0 }}",
    "{{ 'a' 'b' }} {{ (1) }} {{ (1,) }} {{ () }} {{ {'a': 1}.a }} {{ [1, 2, 3][1] }} {{ x.list.0 }} {{ ['a', 'b'].index('b') }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.get('z') }} {{ {'a': 1}.get('z', 3) }}",
    "{{ dict(a=1, b=2) }} {{ range(2, 5) | list }} {{ strftime_now('%%') }}", "a\n  {% if true %}  \n b \n  {% endif %}\n c\n", "a\n  {%- if true -%}  \n b \n  {%- endif -%}\n c\n", "a\n  {%+ if true +%}\n b\n {% endif %} \n c\n\n",
    "a\n  {{ 1 }}\n  {# c #}\n b {# c -#}  \n d", "  {% if true %}x{% endif %}\n", "{% raw %} {{ x }} {% endraw -%}  \n b", "{% raw -%}  {% x %} {%- endraw %}\n\n b", "a\r\nb\rc\n\n", "{{ '}}' }}{{ {'a': {'b': 1}} }}{{ '%}' }}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{{ x.list | length > 2 and 'many' or 'few' }}", "{{ 'a' + 1 }}", "{{ y.z }}", "{{ 1 / 0 }}", "{{ none + 1 }}", "{{ y + 'a' }}", "{{ y() }}", "{{ 'a'.nothing() }}", "{{ x | nothing }}",
    "{{ 1 is nothing }}", "{% nothing %}", "{% if %}", "{% for %}", "{{ 1 +", "{{ [1, 2 }}", "{% if true %}", "{% endif %}", "{{ 'a }}", "{{ raise_exception('stop') }}", "{{ none < 1 }}", "{{ y | tojson }}", "{% break %}", "{% set x.a = 1 %}",
    "{{ x.none_such.deeper }}", "{{ 5 in 5 }}", "{{ 'a' in none }}", "{{ [1, 2].append(3) }}", "{{ (x.a, x.b) == (1, 2) }}", "{{ none | length }}", "{{ 'a' | abs }}", "{{ 1 if }}", "{# no end", "{{ loop }}|{{ caller }}|",
]
X = {"a": 1, "b": 2, "s": "hello", "u": "日本é😀", "space": "\u2003 a\n\x1f", "list": [1, "two", 3.0, None, True], "d": {"z": 1, "a": [1, {"b": "ü\u2028"}], "e": {}}, "t": "multi\nline"}
