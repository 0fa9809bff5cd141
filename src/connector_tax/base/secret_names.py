"""Which names tell that a secret stands behind them; read word by word. Standard library only, as the redactor."""

import re
from functools import lru_cache

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = re.compile(
    r"pass_?w(or)?d|passphrase|secret|credential|authorization"
    r"|(require|user|db|root|admin|redis)pass(?![a-z])|(master|basic|proxy|http)auth(?![a-z])|(session|vault)token(?![a-z])"
    r"|cookies?(?![a-z])|((api|access|private|signing|auth)_?key|(api|access|auth|hf|bearer|refresh)_?token)s?(?![a-z])"
    # Beginnings that vLLM's parser takes.
    r"|(^|_)(api_ke?|hf_t(o(ke?)?)?)(?![a-z])"
)
_ALONE = frozenset(("auth", "oauth", "bearer", "pwd", "pw", "creds", "jwt", "cookie", "cookies"))
# What stands before `keys` where they open something.
_KEYS_OF = re.compile(
    r"account|admin|anthropic|app|application|aws|azure|client|deploy|encryption|decryption|gcp|google|hf|hmac"
    r"|huggingface|licen[cs]e|kms|master|openai|root|service|shared|ssh|subscription|vault|wandb"
)
# What stands before `key` where it opens nothing: that of a mapping, a cache or a sort.
_ORDINARY_KEYS = re.compile(
    r"any|attention|attn|block|bucket|by|cache|cached|cell|chunk|column|compile|config|data|dedupe?|default|dict|dictionary|duplicate"
    r"|each|engine|entry|env|event|external|field|file|first|foreign|graph|group|hash|header|idempotency|index|instance|job|json|k"
    r"|kernel|kv|label|last|layer|lookup|lora|map|mapping|max|message|metric|min|missing|mm|modality|model|module|name|new|next|no|node"
    r"|mirror|num|object|offload|old|one|option|oversized?|quant|scoped|split|order|page|param|partition|placeholder|pool|prefix|primary|public|q|query|range|rank|registry|req"
    r"|request|routing|row|same|search|shape|sort|state|stats|tensor|this|trace|unique|unknown|v|value|weight|worker|wrong"
)
# What stands before `token` where it is a piece of text.
_TEXT_TOKENS = re.compile(
    r"answer|audio|batch|batched|block|bos|bot|by|cached|chunk|cls|completion|context|decode|draft|each|end|eos|extra|fill|first"
    r"|generation|image|input|inter|kv|last|mask|max|middle|min|mtp|new|next|num|one|output|pad|padding|page|per|placeholder|prefill"
    r"|prompt|reasoning|request|role|sep|single|spec|special|start|stop|suffix|text|think|thinking|tool|total|unk|video|vision"
)
_USERS = re.compile(
    "account|admin|amqp|auth|cassandra|client|db|docker|etcd|ftp|git|http|kafka|keystore|ldap|lmcache|login|mail|master|minio|mongo|mooncake"
    "|mqtt|mysql|nats|oauth|pg|postgres|proxy|redis|registry|remote|root|s|sasl|server|service|sftp|smtp|sql|ssh|storage|store|sudo|user"
    "|valkey|vault"
)
# A name that ends so speaks about a secret and holds none.
_ABOUT = re.compile(
    r"count|dir|directory|enabled|endpoint|env|expiry|file|folder|header|home|host|length|limit|lifetime|method|mode|name|path"
    r"|port|provider|required|scheme|size|sock|socket|timeout|ttl|type|uri|url|user|username"
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under ``name`` is to be kept to oneself: of an argument, a variable, a member of a mapping."""
    words = [word.lower() for word in WORDS.findall(name)]
    if not words or _ABOUT.fullmatch(words[-1]):
        return False
    if _ALWAYS.search("_".join(words)) or _ALONE & set(words):
        return True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return bool(before) and _ORDINARY_KEYS.fullmatch(before) is None
    if last == "keys":
        return _KEYS_OF.fullmatch(before) is not None
    if last == "token":
        return _TEXT_TOKENS.fullmatch(before) is None and "per" not in words
    return last == "pass" and (not before or _USERS.fullmatch(before) is not None)
