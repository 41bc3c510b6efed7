"""Trains the built-in tokenizer and writes `tokenizer.json` and `tokenizer_config.json` beside this file.

    tests/.venv/bin/python shared/models/builtin/train.py [DIRECTORY]

The text is this project's own: sentences, dialogues, JSON and code that this script composes from the lists below with
a seeded generator. The same script makes the same files, and a test checks that. Token ids are part of what replicas
and workers agree on through block hashes, so do not change it casually: every cached prefix of the demo model changes.
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCAB_SIZE = 4096
SPECIAL = ["<|begin|>", "<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]

# Words, numbers in groups of at most three digits, punctuation, whitespace: what byte-level BPE merges within.
SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# The demo model's dialogue: every message is a role token, the text, and an end token, so that a longer conversation
# begins with the tokens of the shorter one. Parts of a message are joined; calls and results are JSON.
CHAT_TEMPLATE = """\
{%- macro text(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is not none and content is defined -%}
        {%- for part in content -%}
            {{- part.text if part.type == 'text' else '[' ~ part.type ~ ']' -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- if tools -%}
    {{- '<|system|>You can call these tools:' -}}
    {%- for tool in tools -%}
        {{- '\\n' + (tool | tojson) -}}
    {%- endfor -%}
    {{- eos_token -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role in ['system', 'developer'] -%}
        {{- '<|system|>' -}}
    {%- elif message.role == 'user' -%}
        {{- '<|user|>' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<|assistant|>' -}}
    {%- elif message.role in ['tool', 'function'] -%}
        {{- '<|tool|>' -}}
    {%- else -%}
        {{- raise_exception('unknown role: ' + message.role) -}}
    {%- endif -%}
    {{- text(message.content) -}}
    {%- for call in message.tool_calls or [] -%}
        {{- '\\ncall ' + call.function.name + ' ' + (call.function.arguments | tojson) -}}
    {%- endfor -%}
    {{- eos_token -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"""

SUBJECTS = """the router|a worker|the scheduler|every replica|the signal box|a train|the switch tower|our team|the
operator|a passenger|the engineer|the model|a request|the queue|the customer|someone|the teacher|a student|the doctor|
the computer|the city|a company|the government|my friend|the child|an old woman|the river|the garden|the weather|a
scientist|the artist|the machine|the network|the program|this function|the server|the client|the cache|a block of
memory|the answer|the question|the story|the book|the morning train|the last station""".replace("\n", " ").split("|")

VERBS = """sends|receives|chooses|keeps|moves|holds|finds|loses|remembers|forgets|explains|describes|writes|reads|
opens|closes|follows|leads|starts|stops|builds|breaks|measures|counts|shares|needs|wants|knows|sees|hears|asks|
answers|helps|teaches|learns from|waits for|looks at|talks about|thinks about|works with|travels to|depends on|comes
from|returns to|belongs to|agrees with|listens to|pays for|searches for""".replace("\n", " ").split("|")

OBJECTS = """the shortest path|another worker|a new message|the first token|the whole conversation|the same
prefix|a hundred blocks|its own memory|the next request|an important decision|the number of passengers|a clear
answer|the weather in the mountains|a cup of coffee|the history of the railway|the price of the ticket|two different
languages|the result of the experiment|a simple example|the most interesting part|every detail of the plan|some
water and bread|the beginning of the summer|an open window|the music of the street|a long letter|the problem with the
engine|good advice|a picture of the sea|the rules of the game|the end of the line|a better way""".replace("\n", " ").split("|")

TAILS = """before the others arrive|after a short delay|without waiting|because there is no room left|when the light
turns green|in the middle of the night|for the third time this week|as quickly as possible|at the same time|with great
care|if nothing else is possible|until the work is done|although it was expensive|under heavy load|from one place to
another|during the meeting|on the other side|more often than before|between the two cities|through the open door|
despite the rain|once again|every single day|and then goes home|which surprised everyone|so that nobody is late|
according to the report|instead of the usual one|together with the rest|for example""".replace("\n", " ").split("|")

QUESTIONS = """What is|Where is|Who is|How does|Why does|When does|Can you explain|Could you please describe|Tell me
about|Please summarize|Translate|Write a short story about|Give me an example of|What do you think about|How can I
improve|Is it possible that|List three reasons for|Compare|What would happen without|Help me understand""".replace("\n", " ").split("|")

REPLIES = """Of course!|Sure, here is|Yes, because|No, I do not think so.|That is a good question.|Let me explain.|I am
sorry, but|First of all,|In short,|There are several reasons:|Here is an example:|You are a helpful assistant.|You are
an expert in|Answer briefly.|Thank you very much.|I would suggest|It depends on|The most important thing is|As far as
I know,|To summarize,""".replace("\n", " ").split("|")

WORDS = """time people year way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house service
friend father power hour game line end member law car city community name president team minute idea body information
back parent face level office door health person art war history party result change morning reason research girl guy
moment air teacher force education food music language science nature market control value model data type function
method class object string list index key file path error message request response token context length memory cache
prefix block worker replica schedule queue policy weight score latency throughput cluster network service version
simple large small early young important different national possible public able bad good new first last long great
little own other old high next political human local sure common single open free clear full special easy strong
certain personal red difficult available likely short ready real low recent general similar dark various entire close
legal final main green nice huge popular traditional cultural about above across against along among around because
before behind below beneath beside between beyond could would should might must shall their there these those where
which while whose within without however therefore although usually always never sometimes often already perhaps
probably certainly especially finally quickly slowly carefully exactly nearly almost together tomorrow yesterday
today January February March April May June July August September October November December Monday Tuesday Wednesday
Thursday Friday Saturday Sunday""".split()

SNIPPETS = [
    "match self.{a}.get(&{b}) {{\n    Some(value) => value.clone(),\n    None => return Err({A}Error::{B} {{ name: name.to_owned() }}),\n}}\n",
    "#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]\nenum {A} {{\n    /// The {b}.\n    {B}(u32),\n    Other,\n}}\n",
    "#[test]\nfn {a}_is_{b}() {{\n    let {a} = {A}::default();\n    assert_eq!({a}.{b}(), {n});\n    assert!({a}.is_empty(), \"{{{a}:?}}\");\n}}\n",
    "async def {a}({b}: dict[str, int]) -> list[str]:\n    try:\n        return [str(x) for x in {b}.values() if x != {n}]\n    except ValueError as error:\n        raise RuntimeError(\"{a} failed\") from error\n",
    "use std::{{collections::HashMap, sync::Arc}};\n\nlet {a}: Vec<_> = {b}.iter().filter(|item| item.{a} > {n}).map(|item| &item.{b}).collect();\n",
    "def {a}_{b}({a}, {b}=None):\n    if {b} is None:\n        {b} = []\n    for item in {a}:\n        {b}.append(item)\n    return {b}\n",
    "class {A}{B}:\n    def __init__(self, {a}, {b}):\n        self.{a} = {a}\n        self.{b} = {b}\n\n    def __repr__(self):\n        return f\"{A}({{self.{a}}})\"\n",
    "fn {a}_{b}({a}: &str, {b}: usize) -> Result<String, Error> {{\n    let mut output = String::new();\n    for index in 0..{b} {{\n        output.push_str({a});\n    }}\n    Ok(output)\n}}\n",
    "pub struct {A}{B} {{\n    pub {a}: Option<u64>,\n    {b}: Vec<String>,\n}}\n\nimpl {A}{B} {{\n    pub fn new() -> Self {{\n        Self {{ {a}: None, {b}: Vec::new() }}\n    }}\n}}\n",
    "function {a}{B}({a}, {b}) {{\n  const result = {a}.map((x) => x + {b});\n  console.log(result);\n  return result;\n}}\n",
    "SELECT {a}, COUNT(*) FROM {b} WHERE {a} > {n} GROUP BY {a} ORDER BY {a} DESC LIMIT 10;\n",
    "import {a}\nfrom {b} import {A}\n\nif __name__ == \"__main__\":\n    print({a}.{b}({n}))\n",
    "<div class=\"{a}\">\n  <p id=\"{b}\">{A} {b}</p>\n</div>\n",
    "# {A}\n\n* **{b}**: {a} {n}\n* `{a}.{b}`\n\n1. {A} {b}\n2. {B} {a}\n\n| {a} | {b} |\n|---|---|\n| {n} | {n} |\n",
    "[{a}]\n{b} = \"{A}\"\nenabled = true\nlimit = {n}\n\n{a}:\n  - name: {b}\n    value: {n}\n",
    "for (int i = 0; i < {n}; i++) {{\n    if ({a}[i] == {b}) {{\n        return i;\n    }}\n}}\nreturn -1;\n",
    "curl -s http://localhost:{n}/v1/{a} -H 'content-type: application/json' -d '{{\"{b}\": {n}}}'\n",
]

OTHER_LANGUAGES = [
    "Der Zug fährt um acht Uhr ab, und wir müssen noch die Fahrkarten kaufen. Können Sie mir bitte helfen?",
    "Le train arrive à la gare vers midi. Où se trouve la bibliothèque, s'il vous plaît ? C'était très intéressant.",
    "El tren sale a las nueve de la mañana. ¿Dónde está la estación? Muchas gracias por tu ayuda, señor.",
    "Il treno parte alle dieci. Perché non andiamo insieme? È una giornata bellissima.",
    "O trem chega às três horas. Você não está cansado? Até amanhã, coração.",
    "Поезд отправляется утром. Как вас зовут? Большое спасибо за помощь.",
    "Το τρένο φεύγει το πρωί. Ευχαριστώ πολύ για τη βοήθεια.",
    "火车早上八点出发。请问图书馆在哪里?谢谢你的帮助。今天天气很好。",
    "電車は朝八時に出発します。図書館はどこですか。ありがとうございます。",
    "기차는 아침 여덟 시에 출발합니다. 도서관이 어디에 있습니까? 감사합니다.",
    "يغادر القطار في الساعة الثامنة. أين المكتبة؟ شكرا جزيلا.",
    "הרכבת יוצאת בשעה שמונה. איפה הספרייה? תודה רבה.",
    "ट्रेन सुबह आठ बजे चलती है। पुस्तकालय कहाँ है? बहुत धन्यवाद।",
    "🙂 👍 🎉 🚂 ✅ ❌ → ← … – — “quoted” ‘text’ • € £ ° ½ × ≤ ≥",
]


def sentence(rng):
    words = f"{rng.choice(SUBJECTS).strip()} {rng.choice(VERBS).strip()} {rng.choice(OBJECTS).strip()}"
    if rng.random() < 0.6:
        words += f" {rng.choice(TAILS).strip()}"
    return words[0].upper() + words[1:] + rng.choice([".", ".", ".", "!", ", and that is fine.", ";"])


def dialogue(rng):
    question = f"{rng.choice(QUESTIONS).strip()} {rng.choice(OBJECTS).strip()}?"
    answer = f"{rng.choice(REPLIES).strip()} {sentence(rng)} {sentence(rng)}"
    return f"User: {question}\nAssistant: {answer}\n\n"


def document(rng):
    words = rng.sample(WORDS, 4)
    record = {words[0]: rng.randrange(100000), words[1]: [rng.random(), None, True], "type": "function", "name": words[2]}
    return json.dumps({"role": "user", "content": sentence(rng), words[3]: record}, indent=rng.choice([None, 2])) + "\n"


def code(rng):
    a, b = (word.lower() for word in rng.sample(WORDS, 2))
    return rng.choice(SNIPPETS).format(a=a, b=b, A=a.title(), B=b.title(), n=rng.randrange(10000))


def corpus():
    rng = random.Random(20261101)
    for _ in range(6000):
        yield " ".join(sentence(rng) for _ in range(rng.randrange(1, 5))) + "\n"
        yield dialogue(rng)
    for _ in range(3000):
        yield code(rng)
        yield document(rng)
        yield " ".join(rng.choices(WORDS, k=20)) + "\n"
    for _ in range(40):
        yield from OTHER_LANGUAGES


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B:1", special_tokens=[("<|begin|>", begin)]
    )
    return tokenizer


def main():
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    tokenizer = train()
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    config = {
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "model_max_length": 32768,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
