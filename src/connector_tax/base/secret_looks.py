"""How texts write names, their values, and secrets that tell themselves. Standard library only, as the redactor.

Source of the token shapes: the default rules of gitleaks 8, and what vendors document.
"""

import re

AUTH_SCHEME = r"(?:basic|bearer|digest|negotiate|token|api-?key|splunk|ntlm|oauth|hawk|ssws)"
# Names and values of a text. Every repetition is bounded or begins where no name was under way, so a line of any length is read once.
_INLINE = r"(?:\\?[ \t]){0,40}+"
BLANKS = _INLINE + r"(?:[^\S \t]{1,3}+[ \t]{0,200}+){0,2}+"
NAME = re.compile(rf"(?<![\w.-])-*(?P<name>[A-Za-z_][\w.-]*)(?P<sep>\\*[\"']?{_INLINE}(?:=>|[=:]){BLANKS})")
FLAG = re.compile(
    r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)(?P<sep>(?:[ \t]{0,40}\\\n)?[ \t]{0,40}\s{1,3})(?!-)"
)
TAG = re.compile(r"<(?P<name>[A-Za-z][\w.-]{0,100})>(?P<value>[^<\n]{1,4000})(?=</)")
VALUE = re.compile(
    r"(?:[bruf]{1,2}(?=[\"']))?(?:"
    # Python's and TOML's long strings, YAML's blocks.
    r"(?P<t>\"\"\"|'{3})(?P<in7>[\s\S]{1,4000}?)(?P=t)"
    r"|[|>][+-]?\d?[ \t]{0,40}\n(?P<indent>[ \t]{1,80})(?P<in8>[^\n]{1,4000}(?:\n(?P=indent)[^\n]{0,4000}){0,100})|"
    r'"(?P<in1>(?:\\.|[^"\\\n]){0,4000})"'
    r"|'(?P<in2>(?:\\.|[^'\\\n]){0,4000})'"
    r"|(?P<q>\\+[\"'])(?P<in3>(?:(?!(?P=q)).){0,4000})(?P=q)"
    r"|\[(?P<in4>[^\]\n]{0,1000})\]"
    r"|\\*[\"'](?P<in5>[^\n\"']{1,4000})"
    rf"|(?P<in6>(?:{AUTH_SCHEME}\s{{1,3}})?(?:\$\{{\w+\}}|[^\s,;&\"'<>)}}\]\\\[({{])+)"
    ")",
    re.IGNORECASE,
)
INSIDES = tuple(f"in{number}" for number in range(1, 9))
# What a line ends with whose value may stand on one of the next, and how many of them belong to it then; the text is its last part.
GOES_ON = re.compile(rf"(?:[:=]>?|(?<![\w.-])--?[A-Za-z][\w.-]{{0,100}}|{AUTH_SCHEME})\Z", re.IGNORECASE)
GOES_ON_LONG = re.compile(r"(?:[|>][+-]?\d?)\Z")
LINES_BEHIND, LINES_BEHIND_LONG = 6, 101
SCHEME = re.compile(r"\b(?P<head>(?:bearer|basic)\s{1,3})(?P<value>[\w.~+/=-]{8,})", re.IGNORECASE)
NO_BEARER = re.compile(r"auth(entication|orization)\b|credentials?\b|tokens?\b|[a-z]+ing\b", re.IGNORECASE)
PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
IN_URL = re.compile(
    # user:password, a password with slashes in it, a token in the place of a user.
    r"(?<=://)(?:[^\s/?#'\"<>@]{0,400}:[^\s/?#'\"<>]{1,400}"
    r"|[^\s/?#'\"<>@:]{0,400}:(?!\d{1,5}[/?#,])[^\s'\"<>@]{1,400}|[\w~%-]{16,400})(?=@)"
)
SIGNED = re.compile(r"(?P<head>[?&](?:x-amz-)?sig(?:nature)?=)(?P<value>[^\s&\"'<>]{8,})", re.IGNORECASE)
LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # A folder of checkpoints begins so, too, and is shorter.
    r"hf_[A-Za-z0-9]{30,}|(?<!/)hf_(?=[a-z0-9]{0,40}[A-Z])[A-Za-z0-9]{16,}"
    r"|sk-[\w-]{8,}|[prs]k_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|gh[opusr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"
    r"|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}"
    r"|hv[bsr]\.[\w-]{8,}|dckr_[a-z]{3}_[\w-]{8,}|(?<=hooks\.slack\.com/services/)[\w/]{8,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{16,}|npm_[A-Za-z0-9]{30,}|nvapi-[\w-]{16,}|pypi-AgE[\w-]{16,}|AGE-SECRET-KEY-1\w{16,}"
    r")"
)
# Most lines of most logs hold none of these; the rest is looked at closely.
HINTS = (
    *("key", "secret", "pass", "pwd", "pw", "cred", "auth", "bearer", "basic", "jwt", "cookie", "://", "sig"),
    *(
        "hf_",
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat",
        "glpat",
        "akia",
        "asia",
        "abia",
        "acca",
    ),
    *(
        "xox",
        "xapp",
        "eyj",
        "aiza",
        "ya29",
        "npm_",
        "nvapi",
        "pypi-",
        "k_live_",
        "k_test_",
        "hvb.",
        "hvs.",
        "hvr.",
        "dckr_",
        "slack.com",
    ),
)
TOKEN = re.compile(r"token(?!s?/s)")
