// Other inputs for a call: a form of the tool's schema, or JSON, and the changes before they are sent.
import { previewEdit } from '../api.js';
import { hidden } from '../text/characters.js';
import { isObject, line, parse, text } from '../text/json.js';
import { el } from '../text/text.js';

/**
 * The editor of a call's inputs. `turn` is called with each step: `form`, `review`, or `cancel`.
 */
export function editor(item, turn) {
  const { input, input_schema: schema } = item;
  const form = { fields: fieldsOf(input, schema), json: null, errors: new Map(), all: '', hasSecrets: (item.secret_inputs ?? []).length > 0 };
  // What is typed over a secret input is not kept over a sign-in.
  for (const { name, control: field } of form.fields ?? []) {
    const pointer = `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if ((item.secret_inputs ?? []).some(place => place === pointer || place.startsWith(`${pointer}/`))) field.dataset.secret = '';
  }
  let inputs = input;
  // What the tool says about these inputs, with the hash that the approval names.
  let shownPreview = null;
  const to = step => {
    self.step = step;
    turn(step);
  };
  const self = {
    step: 'form',
    cancel: () => to('cancel'),
    again: () => to('form'),
    /** Reads the form, and shows the changes with their preview, or returns what is wrong. */
    async review() {
      self.errorText = '';
      const read = readForm(form);
      if (typeof read === 'string') return read;
      if (line(read) === line(input)) return 'Nothing is changed.';
      try {
        shownPreview = await previewEdit(item.tool_call_id, read);
      } catch (error) {
        return error.code === 'invalid_inputs' ? self.refused(error.details.errors ?? []) : error.message;
      }
      inputs = read;
      to('review');
      return '';
    },
    decided: () => ({ validatedInputs: inputs, previewHash: shownPreview.preview_hash }),
    /** Shows the reasons of the server beside the fields. */
    refused(errors) {
      form.errors = byField(errors);
      form.all = errors.map(({ pointer, message }) => `${pointer || 'inputs'}: ${message}`).join(' ');
      self.errorText = `The server refused these inputs. ${form.all}`;
      to('form');
      return self.errorText;
    },
    contents: () => drawForm(form, schema),
    /** What is reviewed: the inputs, and what the tool says about them. */
    edited: () => ({ inputs, preview: shownPreview.preview }),
    errorText: '',
  };
  return self;
}

/** A form of a schema without values: its contents, what is read from it, and the reasons of the server. */
export function blank(schema) {
  const form = { fields: fieldsOf({}, schema) ?? [], json: null, errors: new Map(), all: '' };
  const contents = () => form.fields.map((field, n) => drawField(field, n, form.errors.get(field.name)));
  return {
    contents,
    read: () => readForm(form),
    refused(errors) {
      form.errors = byField(errors);
      return contents();
    },
  };
}

// The messages of the server by the names of the fields.
const byField = errors => new Map(errors.map(({ pointer, message }) => [pointer.split('/')[1]?.replaceAll('~1', '/').replaceAll('~0', '~') ?? '', message]));

// The fields of the schema and of the inputs, or nothing if the schema describes no plain object.
function fieldsOf(input, schema) {
  const properties = isObject(schema?.properties) ? schema.properties : {};
  const names = [...new Set([...Object.keys(input), ...Object.keys(properties)])];
  if (names.length === 0) return null;
  return names.map(name => {
    const property = isObject(properties[name]) ? properties[name] : {};
    const isRequired = Array.isArray(schema?.required) && schema.required.includes(name);
    const isSet = Object.hasOwn(input, name);
    const kind = kindOf(property, isSet ? input[name] : undefined);
    return { name, property, isRequired, kind, control: control(kind, property, isSet ? input[name] : undefined), isSet };
  });
}

// The values of a choice: those of `enum`, or of `oneOf` where each has a value.
function wordsOf({ enum: words, oneOf: titled }) {
  if (Array.isArray(words)) return words;
  return Array.isArray(titled) && titled.every(word => isObject(word) && Object.hasOwn(word, 'const')) ? titled.map(word => word.const) : null;
}

function kindOf(property, value) {
  const { type } = property;
  if (wordsOf(property) !== null) return 'choice';
  if (type === 'boolean' && (value === undefined || typeof value === 'boolean')) return 'switch';
  if ((type === 'integer' || type === 'number') && !isObject(value) && typeof value !== 'string') return 'number';
  // A text box would show hidden characters as they are, so such a text is JSON with escapes.
  if (type === 'string' && (value === undefined || (typeof value === 'string' && hidden(value).length === 0 && !value.includes('\r')))) return 'text';
  return 'json';
}

function control(kind, property, value) {
  const usual = property.default;
  const first = value === undefined ? usual : value;
  if (kind === 'choice') {
    const all = wordsOf(property).map(line);
    const chosen = first === undefined ? all[0] : line(first);
    const choices = all.includes(chosen) ? all : [chosen, ...all];
    return el('select', {}, choices.map(word => el('option', { value: word, selected: word === chosen }, word)));
  }
  if (kind === 'switch') return el('select', {}, ['true', 'false'].map(word => el('option', { value: word, selected: word === String(first ?? false) }, word)));
  if (kind === 'number') return el('input', { type: 'text', inputMode: 'decimal', spellcheck: false, value: first === undefined ? '' : line(first) });
  const lines = kind === 'text' ? first ?? '' : first === undefined ? '' : text(first);
  return el('textarea', { rows: Math.min(12, lines.split('\n').length + (lines.length > 60 ? 1 : 0)), spellcheck: false, value: lines });
}

function drawForm(form, schema) {
  const asJson = form.json !== null || form.fields === null;
  const swap = form.fields !== null && el('button', { type: 'button', className: 'link', on: { click: event => {
    const formElement = event.target.closest('.form');
    const read = readForm(form);
    if (asJson) form.json = null;
    else form.json = el('textarea', { id: 'edit-json', rows: 12, spellcheck: false, value: text(typeof read === 'string' ? {} : read) });
    formElement.replaceChildren(...drawForm(form, schema).childNodes);
    formElement.querySelector('textarea, input, select').focus();
  } } }, asJson ? 'Edit as a form instead (drops the changes of the JSON)' : 'Edit as JSON instead');
  if (form.fields === null) form.json ??= el('textarea', { id: 'edit-json', rows: 12, spellcheck: false, value: '{}' });
  if (form.hasSecrets && form.json !== null) form.json.dataset.secret = '';
  return el('div', { className: 'form' }, el('h3', {}, 'Change the inputs'),
    asJson ? [el('label', { for: 'edit-json' }, 'Inputs as JSON'), form.json, form.all && el('p', { className: 'error' }, form.all)]
      : form.fields.map((field, n) => drawField(field, n, form.errors.get(field.name))),
    swap && el('p', {}, swap));
}

function drawField(field, n, error) {
  const { name, property, isRequired, kind, control: input } = field;
  input.id = `field-${n}`;
  input.setAttribute('aria-describedby', `hint-${n}`);
  input.disabled = !field.isSet && !isRequired;
  input.setAttribute('aria-invalid', String(error !== undefined));
  const choose = !isRequired && el('label', { className: 'check', for: `set-${n}` },
    el('input', { id: `set-${n}`, type: 'checkbox', checked: field.isSet, on: { change: event => {
      field.isSet = event.target.checked;
      input.disabled = !field.isSet;
    } } }), el('span', {}, `send ${name}`));
  const hints = [kind === 'json' && 'JSON', kind === 'number' && (property.type === 'integer' ? 'whole number' : 'number'), property.description];
  return el('div', { className: 'field' },
    el('label', { for: input.id }, name, isRequired && el('small', {}, ' required')), choose, input,
    el('p', { className: 'hint', id: `hint-${n}` }, hints.filter(Boolean).join('. '), error !== undefined && el('span', { className: 'error' }, ` ${error}`)));
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

// The inputs of the form, or a sentence about what is wrong.
function readForm({ fields, json }) {
  if (json !== null) {
    try {
      const read = parse(json.value);
      return isObject(read) && !Array.isArray(read) ? read : 'Expected a JSON object.';
    } catch (error) {
      return `The inputs are not JSON: ${error.message}`;
    }
  }
  const entries = [];
  for (const { name, kind, control: input, isSet, isRequired } of fields) {
    if (!isSet && !isRequired) continue;
    if (kind === 'text') {
      entries.push([name, input.value]);
      continue;
    }
    if (kind === 'number' && !NUMBER.test(input.value.trim())) return `${name}: expected a number.`;
    try {
      entries.push([name, parse(input.value)]);
    } catch {
      return `${name}: expected JSON. A text is in quotes.`;
    }
  }
  return Object.fromEntries(entries);
}
