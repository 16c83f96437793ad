export default function Page() {
  return <p>The page</p>;
}
