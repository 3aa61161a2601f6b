"""The part of JSON Schema (draft 2020-12) that docs/schemas uses."""

import re

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "enum", "const", "anyOf", "properties", "required",
          "additionalProperties", "items", "pattern"}


def _is(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def problems(value, schema, root=None, place="$"):
    """What of the value the schema does not allow: a list of texts, empty where it is valid."""
    root = root or schema
    unknown = set(schema) - _KNOWN
    if unknown:
        raise ValueError(f"the schema at {place} uses {unknown}, which this reader does not know")
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    found = []
    if "type" in schema and not _is(value, schema["type"]):
        return [f"{place} is no {schema['type']}: {value!r:.80}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} is {value!r:.80}, not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{place} is {value!r:.80}, not {schema['const']!r}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place} is {value!r:.80}, which {schema['pattern']} does not match")
    if "anyOf" in schema:
        each = [problems(value, one, root, place) for one in schema["anyOf"]]
        if all(each):
            found.append(f"{place} is none of {len(each)}: " + " | ".join(one[0] for one in each))
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{place} lacks {name}" for name in schema.get("required", ()) if name not in value]
        for name, item in value.items():
            rest = known.get(name, schema.get("additionalProperties", True))
            if rest is False:
                found.append(f"{place} must not have {name}")
            elif isinstance(rest, dict):
                found += problems(item, rest, root, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for k, item in enumerate(value):
            found += problems(item, schema["items"], root, f"{place}[{k}]")
    return found
