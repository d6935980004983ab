"""What `security` finds in JavaScript, Go and Rust: each pattern on a program with the hole and on one without it."""

from __future__ import annotations

import pytest

from services.cli.eval.suites import suite_tasks
from services.scorer.strategies.source_checks import HOLES, SECURITY
from workbench.sandbox.job import TreeFile

CHECKED = {one.language: one for one in SECURITY}
EXAMPLES = {
    ("javascript", "eval"): [
        ("const sum = eval(`${a} + ${b}`);", "const sum = redis.eval(script) + evaluate(a);"),
        ("(0, eval)(text);", "// eval(text) is not needed\n/* nor\n eval(this) */\nrun(text);"),
        ("window.eval(text)", "if (mode === 'eval') {}"),
    ],
    ("javascript", "function-of-text"): [
        ("const f = new Function('a', body);", "function Function1() {}"),
        ("vm.runInNewContext(text)", "const vm = make();"),
    ],
    ("javascript", "timer-of-text"): [("setTimeout('go()', 10)", "setTimeout(() => go('now'), 10)")],
    ("javascript", "shell"): [
        ("const { exec } = require('child_process');\nexec(`ls ${folder}`);", "const found = /a(b)/.exec(text);"),
        ("require('child_process').exec(line)", "pattern.exec(line)"),
        ("cp.execSync('ls ' + folder)", "cp.execFileSync('ls', [folder])"),
    ],
    ("javascript", "shell-option"): [("spawn('ls', [a], { shell: true })", "spawn('ls', [a], { shell: false })")],
    ("javascript", "html"): [
        ("box.innerHTML = name;", "box.innerHTML = '';"),
        ("box.innerHTML += `<b>${name}</b>`;", "if (box.innerHTML == name) {}"),
    ],
    ("javascript", "written-html"): [("document.write(name)", "document.writable(name)")],
    ("javascript", "sql"): [
        ("db.query(`SELECT * FROM t WHERE a = ${a}`)", "db.query('SELECT * FROM t WHERE a = ?', [a])"),
        ("db.query('delete from t where a = ' + a)", "say('it is deleted from ' + a)"),
    ],
    ("javascript", "random-secret"): [
        ("const token = Math.random().toString(36);", "const place = Math.random();"),
        ("make({ sessionId: Math.random() })", "const token = crypto.randomUUID();\nconst x = Math.random();"),
    ],
    ("javascript", "weak-hash"): [("crypto.createHash('md5')", "crypto.createHash('sha256')")],
    ("javascript", "tls"): [("get({ rejectUnauthorized: false })", "get({ rejectUnauthorized: true })")],
    ("go", "shell"): [
        ('exec.Command("sh", "-c", line)', 'exec.Command("ls", "-c", line)'),
        ('exec.CommandContext(ctx, "/bin/bash", "-c", line)', 'exec.CommandContext(ctx, "/bin/ls")'),
    ],
    ("go", "command"): [("exec.Command(os.Args[1])", 'exec.Command("ls", os.Args[1])')],
    ("go", "html"): [("template.HTML(name)", 'template.HTML("<br>")')],
    ("go", "sql"): [
        ('fmt.Sprintf("SELECT a FROM t WHERE b = %s", b)', 'db.Query("SELECT a FROM t WHERE b = ?", b)'),
        ('db.Query("select a from t where b = " + b)', 'fmt.Sprintf("select %d", 1)'),
    ],
    ("go", "random-secret"): [("token := rand.Intn(1000)", "token, err := rand.Int(rand.Reader, most)")],
    ("go", "weak-hash"): [("sum := md5.Sum(data)", "sum := sha256.Sum256(data)")],
    ("go", "tls"): [("&tls.Config{InsecureSkipVerify: true}", "&tls.Config{InsecureSkipVerify: false}")],
    ("go", "unsafe"): [("p := (*int)(unsafe.Pointer(&x))", "unsafe := 1")],
    ("go", "open-to-all"): [('os.WriteFile("a", data, 0666)', 'os.WriteFile("a", data, 0644)')],
    ("rust", "shell"): [('Command::new("sh").arg("-c")', 'Command::new("ls").arg("-c")')],
    ("rust", "sql"): [('format!("SELECT a FROM t WHERE b = {b}")', 'format!("select {b}")')],
    ("rust", "tls"): [(".danger_accept_invalid_certs(true)", ".danger_accept_invalid_certs(false)")],
    ("rust", "unsafe"): [("unsafe { *p }", "#![forbid(unsafe_code)]")],
}


def holes(language: str, text: str) -> dict[str, int]:
    return {name: count for name, count in CHECKED[language].matches_in(TreeFile(text.encode())).items() if count}  # type: ignore[index]


@pytest.mark.parametrize(("language", "name"), EXAMPLES)
def test_a_pattern_finds_its_hole_and_not_what_looks_like_it(language: str, name: str) -> None:
    for bad, good in EXAMPLES[language, name]:
        assert holes(language, f"start();\n{bad}\n") == {name: 1}, bad
        assert holes(language, f"start();\n{good}\n") == {}, good


def test_each_pattern_has_an_example() -> None:
    assert EXAMPLES.keys() == {(language, name) for language, patterns in HOLES.items() for name in patterns}


def test_the_solutions_of_the_suite_have_no_holes() -> None:
    tasks = [task for task in suite_tasks("coding") if task["language"] in HOLES]

    assert len(tasks) >= 75
    assert [task["task_id"] for task in tasks if holes(task["language"], task["reference"])] == []
