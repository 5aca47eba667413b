# check_manifests.py CRDS MANIFEST...
#
# Checks objects of Kubernetes strictly: custom resources by the schemas in CRDS, a folder of CustomResourceDefinitions,
# built-in kinds by the package kubernetes-validate. Unknown fields and repeated keys are errors. Prints "FILE KIND by
# SCHEMA" for each object, or the errors, with exit code 1. An object that no schema is there for is printed as "by none".
import glob
import sys

import yaml


class Loader(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: the key {name} is there twice")
        return super().construct_mapping(node, deep)


def close(schema):
    """Refuses unknown fields, which an API server would drop. Once for each level: schemas are deep."""
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            closed[key] = close(schema[key])
    if "properties" in schema:
        closed["properties"] = {name: close(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
    return closed


def read_schemas(folder):
    schemas = {}
    for path in glob.glob(folder + "/*.yaml"):
        with open(path) as file:
            definition = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = close(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def check(schemas, thing):
    """The name of the schema, and errors."""
    schema = schemas.get((thing["apiVersion"], thing["kind"]))
    if schema:
        import jsonschema
        errors = jsonschema.Draft202012Validator(schema).iter_errors(thing)
        return "its CRD", [f"{error.json_path}: {error.message}" for error in errors]
    if thing["apiVersion"].count(".") > 0:
        return "none", []
    try:
        import kubernetes_validate
    except ImportError:
        return "none", []
    try:
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return "kubernetes-validate", [str(error)]
    return "kubernetes-validate", []


def main():
    schemas = read_schemas(sys.argv[1])
    failed = False
    for path in sys.argv[2:]:
        try:
            with open(path) as file:
                things = list(yaml.load_all(file, Loader))
        except yaml.YAMLError as error:
            print(f"{path}: error: {error}")
            failed = True
            continue
        for thing in things:
            name, errors = check(schemas, thing)
            print(f"{path} {thing['kind']} by {name}")
            for error in errors:
                print(f"{path}: error: {error[:300]}")
                failed = True
    sys.exit(failed)


main()
