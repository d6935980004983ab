"""Makes the tokenizer of this folder anew, the same each time: python examples/played-model/make.py"""

from pathlib import Path

from demos.toy.tools.tokenizer import tool_tokenizer

folder = Path(__file__).parent
tool_tokenizer(65_536).save_pretrained(folder)
(folder / "config.json").write_text("{}\n")
