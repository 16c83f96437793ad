// Without a share of the context the user of the thread alone reads the words.
export default async function ({ facts, open }) {
  const signedIn = async token => {
    const tab = await open();
    await tab.signsIn(token);
    await tab.opens('pay');
    return tab;
  };
  const carol = await signedIn(facts.carol);
  await carol.shows('The words before the call are not shared with you.');
  await carol.shows('None: no call of pay was approved or denied for alice before.');
  const alice = await signedIn(facts.alice);
  await alice.shows('The user wrote');
  await alice.shows('please pay 10');
}
