import { useState } from 'react';
import { holdpoint } from './holdpoint.js';

// What this page does about held calls. Each decision is stored at once, and the server continues the run after the
// last one, also if the page is closed.
export function useDecisions(resume) {
  // By the id of the call: { busy }, { error }, { late: the decision in force }, or { counted }: more people are needed.
  const [answers, setAnswers] = useState({});
  const note = entries => setAnswers(now => ({ ...now, ...Object.fromEntries(entries) }));
  const answerTo = (hold, answer) => ({ resume: true, inputHash: hold.inputHash, ...answer });

  async function decide(hold, answer) {
    const id = hold.toolCallId;
    note([[id, { busy: true }]]);
    try {
      const { state } = await holdpoint.decide(id, answerTo(hold, answer));
      note([[id, { counted: state === 'pending' }]]);
    } catch (error) {
      note([[id, error.decision ? { late: error.decision } : { error }]]);
    }
    await resume();
  }

  async function approveAll(holds) {
    note(holds.map(({ toolCallId }) => [toolCallId, { busy: true }]));
    try {
      const items = await holdpoint.decideAll(
        holds.map(hold => ({ toolCallId: hold.toolCallId, ...answerTo(hold, { approved: true }) })),
      );
      note(items.map(({ toolCallId, state, error }) => [toolCallId, outcomeOf(state, error)]));
    } catch (error) {
      note(holds.map(({ toolCallId }) => [toolCallId, { error }]));
    }
    await resume();
  }

  const deciding = Object.values(answers).some(answer => answer.busy);
  return { answers, decide, approveAll, deciding };
}

function outcomeOf(state, error) {
  if (!error) return { counted: state === 'pending' };
  return error.details?.decision ? { late: error.details.decision } : { error: new Error(error.message) };
}
