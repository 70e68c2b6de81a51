"""Redaction of secrets in texts: which ones, in which notations, whole or cut, in linear time."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from penstock.redaction import without_secrets

HUSH = "hUn+er/2=="
BASIC = base64.b64encode(b"me:hunter2").decode()
PEM = f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{HUSH}\n{HUSH}\n-----END ENCRYPTED PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"

SHOWN = [
    ("password=hunter2, user=me", "password=***, user=me"),
    ('{"kafka.sasl.password": "a b", "x": 1}', '{"kafka.sasl.password": ***, "x": 1}'),
    ("spark.penstock.s3.secretKey: abc", "spark.penstock.s3.secretKey: ***"),
    ("https://host/?token=abc&a=1", "https://host/?token=***&a=1"),
    ("jdbc:x://me:hunter2@host/db", "jdbc:x://me:***@host/db"),
    ("sent Bearer abc.def", "sent Bearer ***"),
    ("Map(user -> me, password -> hunter2)", "Map(user -> me, password -> ***)"),
    ('  df.option("password", "hunter2").load()', '  df.option("password", ***).load()'),
    ("['cmd', '--password', 'hunter2', '-v']", "['cmd', '--password', ***, '-v']"),
    ("cmd --db-password hunter2 -v", "cmd --db-password *** -v"),
    ("jdbc:sqlserver://h:1433;user=me;password={a;b};x=1", "jdbc:sqlserver://h:1433;user=me;password=***;x=1"),
    ("Driver=x;UID=me;PWD=hunter2;", "Driver=x;UID=me;PWD=***;"),
    ("jdbc:oracle:thin:scott/tiger@//h:1521/db", "jdbc:oracle:thin:scott/***@//h:1521/db"),
    ("s3a://AKIA:hUn+er/2==@bucket/key", "s3a://AKIA:***@bucket/key"),
    ("mongodb://me:p@ss/w@h1:27017,h2:27017/db?x=1", "mongodb://me:***@h1:27017,h2:27017/db?x=1"),
    ("https://ghp_0123456789@github.com/a/b", "https://***@github.com/a/b"),
    ("abfss://box@acme.dfs.core.windows.net/a", "abfss://box@acme.dfs.core.windows.net/a"),
    ("connect to h1:9092,h2:9092 as me@host", "connect to h1:9092,h2:9092 as me@host"),
    ("http://host:8080/a/b@c: 404", "http://host:8080/a/b@c: 404"),
    (f"Authorization: Basic {BASIC}\nAccept: */*", "Authorization: ***\nAccept: */*"),
    (f"{{'Authorization': 'Basic {BASIC}', 'a': 1}}", "{'Authorization': ***, 'a': 1}"),
    (f"with Basic {BASIC}", "with Basic ***"),
    ("a basic aggregation", "a basic aggregation"),
    ("https://h/b?sv=2024&sr=c&sig=a%2Fb%3D&se=2026", "https://h/b?sv=2024&sr=c&sig=***&se=2026"),
    ("x?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=0af", "x?X-Amz-Credential=***&X-Amz-Signature=***"),
    ("x?AWSAccessKeyId=AK&Signature=ab%3D&Expires=1", "x?AWSAccessKeyId=***&Signature=***&Expires=1"),
    ("AccountName=a;AccountKey=ab/c==;Suffix=x", "AccountName=a;AccountKey=***;Suffix=x"),
    ("fs.azure.account.key.acme.dfs.core.windows.net=abc==", "fs.azure.account.key.acme.dfs.core.windows.net=***"),
    ("passphrase is wrong: passphrase='a b\\'c' (2)", "passphrase is wrong: passphrase=*** (2)"),
    ("basic.auth.user.info=me:hunter2", "basic.auth.user.info=***"),
    ("Row(api_key=b'abc')", "Row(api_key=***)"),
    (f"got {JWT}.", "got ***."),
    ("the key columns are a, b", "the key columns are a, b"),
    ("rest.tls.key='/etc/key.pem' cannot be read", "rest.tls.key='/etc/key.pem' cannot be read"),
    ("ssl.key.location=/etc/key.pem", "ssl.key.location=/etc/key.pem"),
]

HIDDEN = [
    f"ssl.key.pem={PEM}",
    f"kafka.ssl.keystore.key: {PEM}",
    PEM[:70],
    f"kafka.ssl.key.password={HUSH}",
    f"kafka.ssl.truststore.password -> {HUSH}",
    f"kafka.sasl.oauthbearer.client.secret => {HUSH}",
    f'org.x.PlainLoginModule required username="me" password="{HUSH}";',
    f'{{"kafka.sasl.jaas.config": "org.x.ScramLoginModule required username=\\"me\\" password=\\"{HUSH}\\";"}}',
    f"sasl.jaas.config=org.x.OAuthBearerLoginModule required clientId=a clientSecret={HUSH};",
    f"fs.s3a.access.key={HUSH}",
    f"fs.s3a.secret.key={HUSH}",
    f"fs.s3a.session.token={HUSH}",
    f"fs.s3a.encryption.key={HUSH}",
    f"fs.azure.sas.box.acme.blob.core.windows.net=?sv=1&sig={HUSH}",
    f"SharedAccessSignature sr=x&sig={HUSH}&se=1",
    f"jdbc:postgresql://h/db?user=me&password={HUSH}&ssl=true",
    f"pem_private_key={HUSH}",
    f"sfPassword='{HUSH}'",
    f'password="{HUSH} {HUSH}',
    f"password=hun,{HUSH}",
    f"auth header Authorization: AWS4-HMAC-SHA256 Credential=AK/1, SignedHeaders=host, Signature={HUSH}",
    f"password%3D{HUSH}",
    f"https://me:{HUSH}@host",
    f"https://me:{HUSH}",
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_the_rest_of_a_text_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("text", HIDDEN)
def test_no_part_of_a_secret_stays(text: str) -> None:
    assert "hUn" not in without_secrets(text)
    assert "2==" not in without_secrets(text)


@pytest.mark.parametrize("text", HIDDEN)
def test_nothing_stays_of_a_secret_that_was_cut(text: str) -> None:
    for length in range(text.index("hUn") + 1, len(text)):
        assert "hUn" not in without_secrets(text[:length]), text[:length]


def test_redaction_is_idempotent() -> None:
    for text in (*HIDDEN, *(text for text, _ in SHOWN)):
        once = without_secrets(text)
        assert without_secrets(once) == once


def test_no_text_takes_more_than_linear_time() -> None:
    """All texts of 100 KB take 4 s of CPU together; one pattern with quadratic time would take 40 s."""
    pieces = ["password", "://", "://a:", "basic ", "'", '"', "\\", "\\\"", "(", "{", ",", "--a", "eyJ", "a.", "@", " ",
              "authorization", "-----BEGIN PRIVATE KEY-----", "jdbc:oracle:thin:", "/", "key", "=", "a"]  # fmt: skip
    program = (
        "import random, resource\nresource.setrlimit(resource.RLIMIT_CPU, (25, 25))\n"
        "from penstock.redaction import without_secrets\n"
        f"pieces = {pieces!r}\nchance = random.Random(1)\n"
        "for piece in pieces: without_secrets(piece * (100_000 // len(piece)))\n"
        "for _ in range(20): without_secrets(''.join(chance.choices(pieces, k=2)) * 5_000)\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)
