// The fields of a form for the inputs of a call, from the JSON Schema of its tool; and the inputs as JSON, in which a
// number has the digits that were typed.

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

// A field is { name, kind, label, description, required, value, sent }. Its value is a text, or a boolean for `boolean`.
export function fieldsOf(schema, input) {
  // Inputs that JavaScript cannot hold as an object are a text of JSON already.
  if (!isObject(input)) return [{ name: '', kind: 'json', label: 'Inputs', required: true, value: String(input), sent: true }];
  const properties = isObject(schema?.properties) ? schema.properties : {};
  // As the model ordered them.
  const names = new Set([...Object.keys(input), ...Object.keys(properties)]);
  return [...names].map(name => {
    const property = isObject(properties[name]) ? properties[name] : {};
    const kind = kindOf(property, input[name]);
    const required = schema?.required?.includes(name) === true;
    return {
      name,
      ...kind,
      label: property.title ?? name,
      description: property.description,
      required,
      value: textOf(kind, input[name]),
      sent: required || Object.hasOwn(input, name),
    };
  });
}

function kindOf(schema, value) {
  const options = schema.enum ?? (schema.oneOf?.every(option => 'const' in option) && schema.oneOf.map(option => option.const));
  if (options) return { kind: 'choice', options: options.map(option => JSON.stringify(option)) };
  const fits = type => schema.type === type && (value === undefined || typeof value === type);
  if (fits('string')) return { kind: /\n/.test(value ?? '') || (value ?? '').length > 60 ? 'lines' : 'text' };
  if (fits('boolean')) return { kind: 'boolean' };
  const number = schema.type === 'number' || schema.type === 'integer';
  return { kind: number && (value === undefined || typeof value === 'number') ? 'number' : 'json' };
}

function textOf({ kind }, value) {
  if (kind === 'boolean') return value === true;
  if (value === undefined) return '';
  // JavaScript has rounded it. Sending what it shows would change the call without a word.
  if (kind === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)) return '';
  return kind === 'text' || kind === 'lines' ? value : JSON.stringify(value, null, kind === 'json' ? 2 : 0);
}

// { text } or { errors }, by the names of the fields.
export function inputsOf(fields) {
  const errors = {};
  const members = [];
  for (const field of fields.filter(({ sent }) => sent)) {
    const error = wrong(field);
    if (error) errors[field.name] = error;
    else if (field.name === '') members.push(field.value);
    else members.push(`${JSON.stringify(field.name)}:${jsonOf(field)}`);
  }
  if (Object.keys(errors).length > 0) return { errors };
  return { text: fields[0]?.name === '' ? members[0] : `{${members.join(',')}}` };
}

const jsonOf = ({ kind, value }) => (kind === 'text' || kind === 'lines' ? JSON.stringify(value) : String(value).trim());

function wrong({ kind, name, value }) {
  if (kind === 'number' && !NUMBER.test(value.trim())) return 'Expected a number.';
  if (kind === 'choice' && value === '') return 'Expected one of the choices.';
  if (kind !== 'json') return undefined;
  try {
    const parsed = JSON.parse(value);
    return name === '' && !isObject(parsed) ? 'Expected an object.' : undefined;
  } catch (error) {
    return `Expected JSON: ${error.message}`;
  }
}

// The errors of the server by the names of the fields; under '' those of the whole.
export function errorsOf(error, fields) {
  const errors = {};
  for (const { pointer, message } of error?.details?.errors ?? []) {
    const [, first = ''] = pointer.split('/');
    const named = first.replaceAll('~1', '/').replaceAll('~0', '~');
    const name = fields.some(field => field.name === named) ? named : '';
    errors[name] = errors[name] ? `${errors[name]} ${message}` : message;
  }
  return errors;
}

const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);
