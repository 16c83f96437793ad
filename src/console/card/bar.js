// The controls of a call that waits: deny on the left, approve on the right.
import { approveButton } from './approve.js';
import { changed, guard } from './inert.js';
import { openDialog } from './remember.js';
import { el } from '../text/text.js';
import { goTo } from '../view.js';

/** The controls, and `update`, which says again what is left to read. `isLeft` is what is left before an approval. */
export function decision(item, isLeft, send, edit) {
  const { can_decide: mayDecide = true, can_reject: mayReject = true, cannot_approve: refused, unreadable } = item;
  const mayApprove = mayDecide && !refused && !unreadable;
  // Other inputs may be approved where the proposed ones do not fit.
  const mayEdit = item.can_edit ?? mayApprove;
  if (!mayApprove && !mayEdit && !mayReject) return { controls: [el('p', {}, 'You see this call, and others decide it.')], update() {} };
  const reason = el('textarea', { id: 'reason', rows: 1, maxLength: 2000, placeholder: 'optional' });
  const note = el('textarea', { id: 'note', rows: 1, maxLength: 2000, placeholder: 'optional' });
  const mayRemember = (item.required ?? 1) === 1 && !item.unaccepted_definition && item.can_remember !== false;
  const words = field => (field.value.trim() === '' ? {} : { reason: field.value.trim() });

  const denial = el('div', { className: 'denial', hidden: true, on: { keydown: ({ key }) => { if (key === 'Escape') open(false); } } },
    el('label', { for: 'reason' }, 'Reason for denying'), reason,
    guard(el('button', { type: 'button', className: 'deny' }, 'Deny'), () => send({ isValidated: false, ...words(reason) })),
    el('button', { type: 'button', on: { click: () => open(false) } }, 'Back'));
  const deny = el('button', { type: 'button', className: 'deny', on: { click: () => open(true) } }, 'Deny…');
  // The dialog covers the card, so the card is read before.
  const remember = mayApprove && mayRemember && guard(el('button', { type: 'button', id: 'remember' }, 'Approve, and later calls too…'), () => {
    const found = isLeft();
    if (found === null) openDialog(item, scope => send({ isValidated: true, ...words(note), remember: scope }));
    else if (found.place) goTo(found.place);
  });
  const options = el('div', { className: 'options', id: 'options', hidden: true },
    el('label', { for: 'note' }, 'Note (kept on record)'), note,
    remember);
  const more = el('button', { type: 'button', 'aria-expanded': 'false', 'aria-controls': 'options', on: { click: () => {
    options.hidden = !options.hidden;
    more.ariaExpanded = String(!options.hidden);
  } } }, 'More');
  const approve = mayApprove && approveButton(() => 'Approve', isLeft, () => send({ isValidated: true, ...words(note) }));
  const row = el('div', { className: 'approval' }, mayReject && deny, mayApprove && more,
    el('span', { className: 'gap' }), mayEdit && el('button', { type: 'button', on: { click: edit } }, 'Edit'), approve?.button);

  // The press that opened the form confirms nothing.
  function open(isOpen) {
    denial.hidden = !isOpen;
    row.hidden = isOpen;
    if (isOpen) options.hidden = true;
    more.ariaExpanded = 'false';
    changed();
    (isOpen ? reason : deny).focus();
  }
  return { controls: [options, denial, row], update: () => approve && approve.update() };
}
